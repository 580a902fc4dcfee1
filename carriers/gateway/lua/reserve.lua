-- reserve: give each of several callers of one rate-limit group the time at which it may start.
--
-- No window of burst / rate seconds ever holds more than burst grants. A caller that waits is moreover paced 1 / rate
-- behind the slot before it, and is refused without consuming anything when its turn would come too late. A slot that
-- was given back is used by the next caller who can; one whose time has passed unused leaves the record and lets a
-- later caller follow at half the distance, so that the rate is kept. A caller that does not wait is granted only what
-- is free right now. An exempt caller starts now in any case and is entered into the record, so that the others give
-- way. After the provider itself refused calls the rate is lower for a while (throttle.lua). All keys always have an
-- expiry.
--
-- KEYS
--   1 log        ZSET    grant -> its time, us; grants of the last window and those to come
--   2 free       ZSET    grant -> its time, us; slots that were given back
--   3 throttle   STRING  'at_us factor resume_us', see throttle.lua
-- ARGV
--   1 now_us     the time
--   2 rate       grants a second, may be a fraction
--   3 burst      grants that one window may hold
--   4.. wants    per caller: 'now', 'exempt', or the latest time (us) at which it can use a slot
-- RETURNS
--   {time, time, ...}  per caller its time (us, text), '' where refused

local log, free, throttle = KEYS[1], KEYS[2], KEYS[3]
local now_us, rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wants = {}
for i = 4, #ARGV do wants[#wants + 1] = ARGV[i] end

local RECOVERY_US = 30000000
local SPARE_MS = 1000

local function text(number) return string.format('%.0f', number) end

local function rate_in_force()
  local at, factor, resume = string.match(redis.call('GET', throttle) or '', '^(%d+) (%S+) (%d+)$')
  if not at then return rate, now_us end
  local passed = math.max(0, math.min(1, (now_us - tonumber(at)) / RECOVERY_US))
  return rate * (tonumber(factor) + (1 - tonumber(factor)) * passed), math.max(now_us, tonumber(resume))
end

local rate_now, from_us = rate_in_force()
local interval_us = 1000000 / rate_now
local window_us = burst * interval_us

local function time_at(key, from_last)
  return tonumber(redis.call('ZREVRANGE', key, from_last, from_last, 'WITHSCORES')[2])
end

-- The earliest time at which the window behind it has room.
local function next_by_window()
  local oldest = time_at(log, burst - 1)
  return oldest and oldest + window_us or from_us
end

local function enter(at_us)
  local same = redis.call('ZCOUNT', log, text(at_us), text(at_us))
  local grant = text(at_us)
  while redis.call('ZADD', log, 'NX', text(at_us), grant) == 0 do
    grant = text(at_us) .. ':' .. same
    same = same + 1
  end
  return text(at_us)
end

local function reuse(latest_us)
  local slot = redis.call('ZRANGEBYSCORE', free, text(from_us), text(latest_us), 'LIMIT', 0, 1)[1]
  if slot then redis.call('ZREM', free, slot) end
  return slot
end

local function missed_slot()
  local slot = redis.call('ZRANGEBYSCORE', free, '-inf', '(' .. text(now_us), 'LIMIT', 0, 1)[1]
  if slot then
    redis.call('ZREM', free, slot)
    redis.call('ZREM', log, slot)
  end
  return slot
end

local function pace(latest_us)
  local missed = missed_slot()
  local distance_us = missed and interval_us / 2 or interval_us
  local at_us = math.max(from_us, next_by_window())
  local last_us = time_at(log, 0)
  if last_us then at_us = math.max(at_us, last_us + distance_us) end
  at_us = math.ceil(at_us)
  if at_us <= latest_us then return enter(at_us) end
  if missed then
    redis.call('ZADD', log, missed, missed)
    redis.call('ZADD', free, missed, missed)
  end
  return ''
end

local function grant(want)
  if want == 'exempt' then return enter(now_us) end
  if want == 'now' then
    if from_us > now_us or next_by_window() > now_us then return '' end
    return enter(now_us)
  end
  local latest_us = tonumber(want)
  return reuse(latest_us) or pace(latest_us)
end

redis.call('ZREMRANGEBYSCORE', log, '-inf', text(now_us - window_us))
redis.call('ZREMRANGEBYSCORE', free, '-inf', text(now_us - window_us))

local times = {}
for i, want in ipairs(wants) do times[i] = grant(want) end

local last_us = time_at(log, 0)
if last_us then
  local kept_ms = text(math.ceil((math.max(last_us - now_us, 0) + window_us) / 1000) + SPARE_MS)
  redis.call('PEXPIRE', log, kept_ms)
  redis.call('PEXPIRE', free, kept_ms)
end
return times
