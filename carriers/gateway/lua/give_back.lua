-- give_back: return slots that their callers did not use.
--
-- The last slots simply go, so that the next caller gets them; one with others behind it is kept for whoever can
-- use it, and one whose time has passed is kept as a debt to those who wait (reserve.lua).
--
-- KEYS
--   1 log      ZSET  grant -> its time, us
--   2 free     ZSET  grant -> its time, us; slots that were given back
-- ARGV
--   1.. slots  times (us) as reserve.lua gave them
-- RETURNS
--   number of slots that were in the record, and are not used now

local log, free = KEYS[1], KEYS[2]
local slots = ARGV

local returned = 0
for _, slot in ipairs(slots) do
  if redis.call('ZSCORE', log, slot) then returned = returned + redis.call('ZADD', free, slot, slot) end
end

while true do
  local last = redis.call('ZREVRANGE', log, 0, 0)[1]
  if not last or redis.call('ZREM', free, last) == 0 then break end
  redis.call('ZREM', log, last)
end

local kept_ms = redis.call('PTTL', log)
if kept_ms > 0 then redis.call('PEXPIRE', free, kept_ms) else redis.call('DEL', free) end
return returned
