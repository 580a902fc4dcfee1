-- hold_dispatch: take or keep an account's dispatch lock, so that one process at most claims for it.
--
-- KEYS
--   1 dispatch  STRING  value of the present holder
-- ARGV
--   1 holder    value unique to the caller
--   2 ttl_ms    how long the lock lasts unless held again
-- RETURNS
--   1   taken, or kept: the caller holds it for ttl_ms from now
--   0   another one holds it; nothing is changed

local dispatch = KEYS[1]
local holder, ttl_ms = ARGV[1], ARGV[2]

local present = redis.call('GET', dispatch)
if present and present ~= holder then return 0 end

redis.call('SET', dispatch, holder, 'PX', ttl_ms)
return 1
