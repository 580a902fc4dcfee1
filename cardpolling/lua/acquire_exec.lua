-- acquire_exec: take the right to execute a claim, so that one executor at most runs a card.
--
-- KEYS
--   1 claim        STRING  token of the card's present claim
--   2 exec         STRING  id of the executor that runs it
-- ARGV
--   1 token        the claim the caller was handed
--   2 executor_id  the caller, unique to this execution
--   3 exec_ttl_ms  how long the right lasts unless renewed
-- RETURNS
--   1   taken; or the caller's already, then extended
--   0   the claim is not this token: it ended, expired or was released
--   -1  another executor holds the right; one without expiry is given exec_ttl_ms, so that it ends

local claim, exec = KEYS[1], KEYS[2]
local token, executor_id, exec_ttl_ms = ARGV[1], ARGV[2], ARGV[3]

if redis.pcall('GET', claim) ~= token then return 0 end

local holder = redis.pcall('GET', exec)
if holder and holder ~= executor_id then
  if redis.call('PTTL', exec) < 0 then redis.call('PEXPIRE', exec, exec_ttl_ms) end
  return -1
end

redis.call('SET', exec, executor_id, 'PX', exec_ttl_ms)
return 1
