-- The main chunk of a script is the script: its bound is for the largest, claim and finish.
std = "lua51"
read_globals = {"KEYS", "ARGV", "redis"}
max_cyclomatic_complexity = 30
max_line_length = 120
