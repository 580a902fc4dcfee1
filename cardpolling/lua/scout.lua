-- scout: find due cards that need no exhausted group behind many that do, without claiming them.
--
-- A claim looks at so many queue members and no more, because nothing else runs meanwhile. Where
-- more blocked cards stand ahead than that, the dispatcher looks for the others behind them page
-- by page, each page a short call, and claims those from a queue of candidates.
--
-- KEYS
--   1 queue        ZSET    card id -> earliest due, ms
-- ARGV
--   1 now_ms       only members with score <= now_ms are looked at, lowest first
--   2 offset       how many of them to pass over
--   3 count        how many of them to look at
--   4 card_prefix  the due hash is card_prefix .. id .. ':due'
--   5.. types      check types whose group is exhausted
-- DERIVED KEYS
--   card_prefix .. id .. ':due'  HASH; the prefix carries the account's hash tag
-- RETURNS
--   {looked, id, score, id, score, ...}  how many members were looked at, and those of them
--   for which none of the types is due; a due field that is no number counts as due

local queue = KEYS[1]
local now_ms, offset, count, card_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local types = {unpack(ARGV, 5)}

local LARGEST = 9007199254740992

local fields = {}
for i, name in ipairs(types) do fields[i] = 'due:' .. name end

local function is_blocked(id)
  local dues = redis.pcall('HMGET', card_prefix .. id .. ':due', unpack(fields))
  if dues.err then return true end
  for i = 1, #fields do
    local due = dues[i]
    local at_ms = due and string.match(due, '^%d+$') and tonumber(due)
    if due and not (at_ms and at_ms > tonumber(now_ms) and at_ms < LARGEST) then return true end
  end
  return false
end

if #fields == 0 then return redis.error_reply('scout: at least one type of an exhausted group') end

local members = redis.call(
  'ZRANGEBYSCORE', queue, '-inf', now_ms, 'WITHSCORES', 'LIMIT', offset, count)
local found = {#members / 2}
for i = 1, #members, 2 do
  if not is_blocked(members[i]) then
    found[#found + 1] = members[i]
    found[#found + 1] = members[i + 1]
  end
end
return found
