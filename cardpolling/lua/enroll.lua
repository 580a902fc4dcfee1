-- enroll: put a card under polling; a card that stands in either queue already is left as it is.
--
-- KEYS
--   1 due         HASH  due times and counts of the card
--   2 priority    ZSET  card id -> earliest due, ms
--   3 queue       ZSET  the same, normal queue
-- ARGV
--   1 card_id     the card
--   2 carrier_id  its account
--   3.. dues      check type and due time in ms, in turn; set only where absent
-- RETURNS
--   1   enrolled, at the earliest valid due time of its hash
--   0   it stood in a queue already, or no due time is valid; nothing is changed

local due, priority, queue = KEYS[1], KEYS[2], KEYS[3]
local card_id, carrier_id = ARGV[1], ARGV[2]
local dues = {unpack(ARGV, 3)}

local LARGEST = 9007199254740992

if redis.call('ZSCORE', priority, card_id) or redis.call('ZSCORE', queue, card_id) then return 0 end
local kind = redis.call('TYPE', due).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', due) end

local function integer(value)
  local number = value and string.match(value, '^%d+$') and tonumber(value)
  return number and number < LARGEST and number or nil
end

local earliest_ms
for i = 1, #dues, 2 do
  local name = 'due:' .. dues[i]
  local at_ms = integer(redis.call('HGET', due, name)) or integer(dues[i + 1])
  if at_ms and (not earliest_ms or at_ms < earliest_ms) then earliest_ms = at_ms end
end
if not earliest_ms then return 0 end

for i = 1, #dues, 2 do
  local name = 'due:' .. dues[i]
  if not integer(redis.call('HGET', due, name)) and integer(dues[i + 1]) then
    redis.call('HSET', due, name, dues[i + 1])
  end
end
redis.call('HSET', due, 'carrier', carrier_id)
redis.call('ZADD', queue, 'NX', string.format('%.0f', earliest_ms), card_id)
return 1
