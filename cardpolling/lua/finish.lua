-- finish: write the result of an execution and, where its claim still stands, end the claim.
--
-- A late result (the claim is another one's, or another executor holds the exec right) is only
-- written. A type that was requested while its check ran keeps the requested due time; a type
-- that somebody recorded since keeps everything.
--
-- KEYS
--   1 due          HASH    due times and counts of the card
--   2 claim        STRING  token of the card's present claim
--   3 exec         STRING  id of the executor that runs it
--   4 inflight     ZSET    token -> lease expiry, ms
--   5 priority     ZSET    card id -> earliest due, ms
--   6 queue        ZSET    the same, normal queue
-- ARGV
--   1 token        the claim that was executed
--   2 executor_id  the caller
--   3 card_id      the card
--   4 now_ms       the time
--   5 n            number of field/value pairs
--   6.. changes    n times field and value, then names of fields to delete; the value of due:T
--                  may be '<new>|<seen req>|<seen due>'
-- RETURNS
--   1   the claim is ended; the card stands in one queue, at its earliest due, or is removed
--   0   late: the claim was not ended by this call

local due, claim, exec, inflight, priority, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local token, executor_id, card_id, now_ms, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local changes = {unpack(ARGV, 6)}

local LARGEST = 9007199254740992
local NOTHING_DUE_MS = 3600000

if not (now_ms and n and n >= 0 and n % 1 == 0 and 2 * n <= #changes) then
  return redis.error_reply('finish: now_ms must be a number and n the number of pairs that follow')
end

local function integer(value)
  local number = value and string.match(value, '^%d+$') and tonumber(value)
  return number and number < LARGEST and number or nil
end

local holder = redis.pcall('GET', exec)
local is_own = holder == executor_id
local is_in_time = redis.pcall('GET', claim) == token and (is_own or not holder)
local in_priority, in_queue = redis.call('ZSCORE', priority, card_id), redis.call('ZSCORE', queue, card_id)
if is_in_time then
  redis.call('ZREM', inflight, token)
  redis.call('DEL', claim)
end
if is_own then redis.call('DEL', exec) end

if not (in_priority or in_queue) then
  redis.call('DEL', due)
  return is_in_time and 1 or 0
end

-- A hash that is none cannot be read by anybody: the result makes it one.
local held = redis.call('TYPE', due).ok
if held ~= 'hash' and held ~= 'none' then redis.call('DEL', due) end

-- What is skipped: 'plan' = due, cfm and exp of a type; 'all' = all its fields.
local skipped = {}
local function judge(name, value)
  local seen_req, seen_due = string.match(value, '^[^|]*|([^|]*)|(.*)$')
  if not seen_req then return end
  local req = integer(redis.call('HGET', due, 'req:' .. name)) or 0
  local present = redis.call('HGET', due, 'due:' .. name) or ''
  if req ~= (integer(seen_req) or 0) then skipped[name] = 'plan' end
  if not is_in_time and present ~= seen_due then skipped[name] = 'all' end
end
for i = 1, 2 * n, 2 do
  local name = string.match(changes[i], '^due:(.+)$')
  if name then judge(name, changes[i + 1]) end
end

local function is_skipped(name)
  if name == 'prio' then return not is_in_time end
  local kind, of_type = string.match(name, '^(%a+):(.+)$')
  local how = kind and kind ~= 'req' and skipped[of_type]
  return how == 'all' or (how == 'plan' and (kind == 'due' or kind == 'cfm' or kind == 'exp'))
end

local function write(name, value)
  if is_skipped(name) then return end
  if string.find(name, '^due:') then
    value = string.match(value, '^([^|]*)|[^|]*|.*$') or value
    if not integer(value) then return end
  end
  redis.call('HSET', due, name, value)
end

for i = 1, 2 * n, 2 do write(changes[i], changes[i + 1]) end
for i = 2 * n + 1, #changes do
  if not is_skipped(changes[i]) then redis.call('HDEL', due, changes[i]) end
end
if not is_in_time then return 0 end

local earliest_ms, target, other = nil, queue, priority
local fields = redis.call('HGETALL', due)
for i = 1, #fields, 2 do
  local at_ms = string.find(fields[i], '^due:') and integer(fields[i + 1])
  if at_ms and (not earliest_ms or at_ms < earliest_ms) then earliest_ms = at_ms end
  if fields[i] == 'prio' and fields[i + 1] == '1' then target, other = priority, queue end
end
redis.call('ZREM', other, card_id)
redis.call('ZADD', target, string.format('%.0f', earliest_ms or now_ms + NOTHING_DUE_MS), card_id)
return 1
