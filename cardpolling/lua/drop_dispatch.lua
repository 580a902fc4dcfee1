-- drop_dispatch: give up an account's dispatch lock; a lock that is another one's stays.
--
-- KEYS
--   1 dispatch  STRING  value of the present holder
-- ARGV
--   1 holder    value unique to the caller
-- RETURNS
--   1   given up
--   0   it was not the caller's

local dispatch = KEYS[1]
local holder = ARGV[1]

if redis.call('GET', dispatch) ~= holder then return 0 end

return redis.call('DEL', dispatch)
