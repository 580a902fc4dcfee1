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
--   1   enrolled, at the earliest valid due time that its hash holds or is given
--   0   it stood in a queue already, or no due time is valid; nothing is changed

local due, priority, queue = KEYS[1], KEYS[2], KEYS[3]
local card_id, carrier_id = ARGV[1], ARGV[2]
local dues = {unpack(ARGV, 3)}

local LARGEST = 9007199254740992

if redis.call('ZSCORE', priority, card_id) or redis.call('ZSCORE', queue, card_id) then return 0 end

local function integer(value)
  local number = value and string.match(value, '^%d+$') and tonumber(value)
  return number and number < LARGEST and number or nil
end

local kind = redis.call('TYPE', due).ok
local fields = kind == 'hash' and redis.call('HGETALL', due) or {}

local due_ms = {}
for i = 1, #dues, 2 do due_ms['due:' .. dues[i]] = integer(dues[i + 1]) end
for i = 1, #fields, 2 do
  if string.find(fields[i], '^due:') then due_ms[fields[i]] = integer(fields[i + 1]) or due_ms[fields[i]] end
end
local earliest_ms
for _, at_ms in pairs(due_ms) do earliest_ms = math.min(at_ms, earliest_ms or at_ms) end
if not earliest_ms then return 0 end

if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', due) end
for i = 1, #dues, 2 do
  if integer(dues[i + 1]) then redis.call('HSETNX', due, 'due:' .. dues[i], dues[i + 1]) end
end
redis.call('HSET', due, 'carrier', carrier_id)
redis.call('ZADD', queue, 'NX', string.format('%.0f', earliest_ms), card_id)
return 1
