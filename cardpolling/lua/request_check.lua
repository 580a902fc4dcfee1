-- request_check: ask for checks of a card; each accepted request leads to a check that starts after it.
--
-- KEYS
--   1 due            HASH    due times and counts of the card
--   2 priority       ZSET    card id -> earliest due, ms
--   3 queue          ZSET    the same, normal queue
--   4 claim          STRING  token of the card's present claim: while it stands, the card executes
-- ARGV
--   1 now_ms         the time
--   2 card_id        the card
--   3 cooldown_ms    a type that succeeded within it is not requested; 0 = none
--   4 confirmations  delays in seconds, comma separated; '' = none. With them there is no cooldown
--   5 expected       result that ends the confirmation; '' = none
--   6 to_priority    1 = to be checked first, 0 = in the queue where the card stands
--   7.. types        check types
-- RETURNS
--   n   number of types requested; 0 = all of them are in cooldown
--   -1  the card stands in neither queue: it is not under polling

local due, priority, queue, claim = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now_ms, card_id, cooldown_ms = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local confirmations, expected, to_priority = ARGV[4], ARGV[5], ARGV[6] == '1'
local types = {unpack(ARGV, 7)}

local LARGEST = 9007199254740992

if not (now_ms and cooldown_ms) then
  return redis.error_reply('request_check: now_ms and cooldown_ms must be numbers')
end

local in_priority = redis.call('ZSCORE', priority, card_id)
local in_queue = redis.call('ZSCORE', queue, card_id)
if not (in_priority or in_queue) then return -1 end
local kind = redis.call('TYPE', due).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', due) end

local now_text = string.format('%.0f', now_ms)
local is_confirmed = confirmations ~= '' or expected ~= ''

local function integer(name)
  local value = redis.call('HGET', due, name)
  local number = value and string.match(value, '^%d+$') and tonumber(value)
  return number and number < LARGEST and number or nil
end

local function is_in_cooldown(name)
  if is_confirmed or cooldown_ms <= 0 then return false end
  local ok_ms = integer('ok:' .. name)
  return ok_ms and ok_ms <= now_ms and now_ms - ok_ms < cooldown_ms
end

local function set_or_delete(name, value)
  if value == '' then redis.call('HDEL', due, name) else redis.call('HSET', due, name, value) end
end

local requested = 0
for _, name in ipairs(types) do
  if not is_in_cooldown(name) then
    requested = requested + 1
    local count = ((integer('req:' .. name) or 0) + 1) % LARGEST
    redis.call('HSET', due, 'due:' .. name, now_text, 'req:' .. name, string.format('%.0f', count))
    if is_confirmed then
      set_or_delete('cfm:' .. name, confirmations)
      set_or_delete('exp:' .. name, expected)
    end
  end
end
if requested == 0 then return 0 end

if to_priority then redis.call('HSET', due, 'prio', '1') end
if redis.call('EXISTS', claim) == 1 then return requested end

local function earlier(score) return string.format('%.0f', math.min(now_ms, tonumber(score))) end

if to_priority then
  redis.call('ZREM', queue, card_id)
  redis.call('ZADD', priority, earlier(in_priority or now_ms), card_id)
else
  if in_priority then redis.call('ZADD', priority, earlier(in_priority), card_id) end
  if in_queue then redis.call('ZADD', queue, earlier(in_queue), card_id) end
end
return requested
