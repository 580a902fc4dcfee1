-- throttle: lower an account's rate for a while because the provider itself refused calls.
--
-- Halves the factor at most once a second (a hundred calls refused at once are one refusal) and never below the
-- least; it rises evenly to 1 within the recovery that begins when calls resume. Nothing is granted before the
-- provider's own time.
--
-- KEYS
--   1 throttle        STRING  'at_us factor resume_us', PX until the recovery ends
-- ARGV
--   1 now_us          the time
--   2 retry_after_us  how long the provider asks to wait; 0 = it does not say
-- RETURNS
--   the factor now in force, text

local throttle = KEYS[1]
local now_us, retry_after_us = tonumber(ARGV[1]), tonumber(ARGV[2])

local RECOVERY_US = 30000000
local ONE_REFUSAL_US = 1000000
local LEAST = 0.1

local function text(number) return string.format('%.0f', number) end

local at, factor, resume = string.match(redis.call('GET', throttle) or '', '^(%d+) (%S+) (%d+)$')
at, factor, resume = tonumber(at or 0), tonumber(factor or 1), tonumber(resume or 0)

if now_us - at >= ONE_REFUSAL_US then
  local passed = math.max(0, math.min(1, (now_us - at) / RECOVERY_US))
  factor = math.max(LEAST, (factor + (1 - factor) * passed) / 2)
  at = now_us
end
resume = math.max(resume, now_us + retry_after_us)
at = math.max(at, resume)

local written = string.format('%.4f', factor)
local kept_ms = text(math.ceil((at - now_us + RECOVERY_US) / 1000))
redis.call('SET', throttle, text(at) .. ' ' .. written .. ' ' .. text(resume), 'PX', kept_ms)
return written
