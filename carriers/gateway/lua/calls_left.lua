-- calls_left: how many slots of a rate-limit group a caller that waits could get within a horizon. Changes nothing.
--
-- KEYS
--   1 log         ZSET    grant -> its time, us
--   2 free        ZSET    grant -> its time, us; slots that were given back
--   3 throttle    STRING  'at_us factor resume_us', see throttle.lua
-- ARGV
--   1 now_us      the time
--   2 rate        grants a second, may be a fraction
--   3 burst       grants that one window may hold
--   4 horizon_us  how far ahead to look
-- RETURNS
--   number of slots

local log, free, throttle = KEYS[1], KEYS[2], KEYS[3]
local now_us, rate, burst, horizon_us = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local RECOVERY_US = 30000000

local function text(number) return string.format('%.0f', number) end

local function rate_in_force()
  local at, factor, resume = string.match(redis.call('GET', throttle) or '', '^(%d+) (%S+) (%d+)$')
  if not at then return rate, now_us end
  local passed = math.max(0, math.min(1, (now_us - tonumber(at)) / RECOVERY_US))
  return rate * (tonumber(factor) + (1 - tonumber(factor)) * passed), math.max(now_us, tonumber(resume))
end

local function time_at(key, from_last)
  return tonumber(redis.call('ZREVRANGE', key, from_last, from_last, 'WITHSCORES')[2])
end

local rate_now, from_us = rate_in_force()
local interval_us = 1000000 / rate_now
local first_us, end_us = from_us, now_us + horizon_us

local last_us, oldest_us = time_at(log, 0), time_at(log, burst - 1)
if last_us then first_us = math.max(first_us, last_us + interval_us) end
if oldest_us then first_us = math.max(first_us, oldest_us + burst * interval_us) end

local given_back = redis.call('ZCOUNT', free, text(from_us), text(end_us))
if first_us > end_us then return given_back end
return given_back + math.floor((end_us - first_us) / interval_us) + 1
