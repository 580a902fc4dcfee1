-- claim: take due cards of one account for execution, each with a token and a lease.
--
-- Order of work: 1 drop in-flight members whose lease is over and count them; 2 capacity = limit
-- less what is left in flight; 3 the priority queue up to its quota, floor(capacity x ratio), at
-- least 1; 4 the normal queue; 5 the priority queue again with what is left. Lowest score first.
-- A card that does not fit the budget of a group it needs keeps its place and is passed over. A
-- group with budget always admits its first card, also one that needs more than the budget.
--
-- KEYS
--   1 priority         ZSET    card id -> earliest due, ms
--   2 queue            ZSET    the same, normal queue
--   3 inflight         ZSET    token -> lease expiry, ms
-- ARGV
--   1 now_ms           members with score <= now_ms are due
--   2 lease_ms         how long a claim lasts unless renewed
--   3 limit            how many claims may be in flight
--   4 ratio            share of the capacity that priority gets first; 0 = all of it
--   5 token_prefix     unique to this call
--   6 budgets          'g=n;g=n', calls left per rate-limit group; '' or an empty n = not limited
--   7 groups           'type=g;type=g', group of each check type
--   8 realname_counts  1 = a due realname check is a call, 0 = it is none
--   9 card_prefix      prefix of the derived keys
--   10 scan_limit      how many queue members to look at, 2000 where absent
-- DERIVED KEYS
--   card_prefix .. id .. ':due'    HASH; the prefix carries the account's hash tag
--   card_prefix .. id .. ':claim'  STRING token, PX lease_ms
-- RETURNS
--   {expired, id, token, from_priority, id, token, from_priority, ...}

local priority, queue, inflight = KEYS[1], KEYS[2], KEYS[3]
local now_ms, lease_ms, limit, ratio = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local token_prefix, budgets, groups, realname_counts = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
local card_prefix, scan_limit = ARGV[9], tonumber(ARGV[10] or '2000')

local LARGEST = 9007199254740992
local PAGE = 200

if not (now_ms and lease_ms and limit and ratio and scan_limit and card_prefix) then
  return redis.error_reply('claim: now_ms, lease_ms, limit, ratio and scan_limit must be numbers')
end
if lease_ms < 1 or ratio < 0 or ratio > 1 or token_prefix == '' then
  return redis.error_reply('claim: lease_ms above 0, ratio from 0 to 1, a token prefix')
end

-- A queue that is none ends the call before anything is written.
redis.call('ZCARD', priority)
local is_normal_due = redis.call('ZCOUNT', queue, '-inf', string.format('%.0f', now_ms)) > 0

local left, has_admitted = {}, {}
for group, calls in string.gmatch(budgets, '([^=;]+)=([^;]*)') do left[group] = tonumber(calls) end

-- Only checks whose group has a budget can be too many: nothing else is read of a card.
local fields, group_of = {}, {}
for name, group in string.gmatch(groups, '([^=;]+)=([^;]*)') do
  if left[group] and (name ~= 'realname' or realname_counts) then
    fields[#fields + 1] = 'due:' .. name
    group_of[#fields] = group
  end
end

local function text(number) return string.format('%.0f', number) end

local function is_due(due)
  if not due then return false end
  local at_ms = string.match(due, '^%d+$') and tonumber(due)
  return not at_ms or at_ms >= LARGEST or at_ms <= now_ms
end

local function need_of(id)
  local need = {}
  if #fields == 0 then return need end
  local dues = redis.pcall('HMGET', card_prefix .. id .. ':due', unpack(fields))
  for i, group in ipairs(group_of) do
    if dues.err or is_due(dues[i]) then need[group] = (need[group] or 0) + 1 end
  end
  return need
end

local function fits(need)
  for group, calls in pairs(need) do
    if left[group] <= 0 or (calls > left[group] and has_admitted[group]) then return false end
  end
  return true
end

local function move(id, score)
  redis.call('ZADD', priority, 'XX', text(score), id)
  redis.call('ZADD', queue, 'XX', text(score), id)
end

-- The token, or nothing where the card is claimed already: then it comes again when that claim ends.
local function try_claim(id)
  local claim, token = card_prefix .. id .. ':claim', token_prefix .. ':' .. id
  if redis.call('SET', claim, token, 'NX', 'PX', text(lease_ms)) then
    move(id, now_ms + lease_ms)
    redis.call('ZADD', inflight, text(now_ms + lease_ms), token)
    return token
  end
  local ttl_ms = redis.call('PTTL', claim)
  if ttl_ms < 0 then
    redis.call('PEXPIRE', claim, text(lease_ms))
    ttl_ms = lease_ms
  end
  move(id, now_ms + math.max(ttl_ms, 1))
end

local result = {redis.call('ZREMRANGEBYSCORE', inflight, '-inf', text(now_ms))}
local capacity = math.floor(limit - redis.call('ZCARD', inflight))
local looked = 0
local passed_over = {[priority] = 0, [queue] = 0}

local function take(id, from_priority)
  local need = need_of(id)
  if not fits(need) then return false, true end
  local token = try_claim(id)
  if not token then return false, false end
  for group, calls in pairs(need) do
    left[group], has_admitted[group] = left[group] - calls, true
  end
  if from_priority then redis.pcall('HDEL', card_prefix .. id .. ':due', 'prio') end
  result[#result + 1] = id
  result[#result + 1] = token
  result[#result + 1] = from_priority and 1 or 0
  return true, false
end

-- Takes up to `wanted` cards, looking at no more than `most_in_vain` members that cannot be taken;
-- passed over members stay ahead, so the next look goes on behind them.
local function take_from(key, wanted, most_in_vain)
  local taken, in_vain = 0, 0
  while taken < wanted and in_vain < most_in_vain and looked < scan_limit do
    local page = math.min(PAGE, scan_limit - looked, math.max(wanted - taken, 20))
    local ids = redis.call('ZRANGEBYSCORE', key, '-inf', text(now_ms), 'LIMIT', passed_over[key], page)
    for _, id in ipairs(ids) do
      if taken == wanted or in_vain == most_in_vain then break end
      local is_taken, is_passed_over = take(id, key == priority)
      looked = looked + 1
      if is_taken then taken = taken + 1 else in_vain = in_vain + 1 end
      if is_passed_over then passed_over[key] = passed_over[key] + 1 end
    end
    if #ids < page then break end
  end
  return taken
end

if capacity <= 0 then return result end

local quota = capacity
if ratio > 0 then quota = math.max(1, math.floor(capacity * ratio)) end
-- While the normal queue has cards due, blocked priority cards may not use up the whole look.
local first_look = is_normal_due and math.ceil(scan_limit / 2) or scan_limit

local taken = take_from(priority, quota, first_look)
taken = taken + take_from(queue, capacity - taken, scan_limit)
take_from(priority, capacity - taken, scan_limit)
return result
