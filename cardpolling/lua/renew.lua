-- renew: extend lease and exec right together, as long as both are the caller's.
--
-- KEYS
--   1 claim        STRING  token of the card's present claim
--   2 exec         STRING  id of the executor that runs it
--   3 inflight     ZSET    token -> lease expiry, ms
--   4 priority     ZSET    card id -> earliest due, ms
--   5 queue        ZSET    the same, normal queue
-- ARGV
--   1 token        the claim that is executed
--   2 executor_id  the caller
--   3 lease_ms     how long the claim lasts from now
--   4 exec_ttl_ms  how long the exec right lasts from now
--   5 now_ms       the time
--   6 card_id      the card
-- RETURNS
--   1   extended
--   0   claim or exec right is no longer the caller's; nothing is changed

local claim, exec, inflight, priority, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, executor_id, lease_ms, exec_ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now_ms, card_id = ARGV[5], ARGV[6]

if not (tonumber(now_ms) and (tonumber(lease_ms) or 0) > 0 and (tonumber(exec_ttl_ms) or 0) > 0) then
  return redis.error_reply('renew: now_ms a number, lease_ms and exec_ttl_ms above 0')
end

if redis.pcall('GET', claim) ~= token then return 0 end
if redis.pcall('GET', exec) ~= executor_id then return 0 end

local expiry_ms = string.format('%.0f', tonumber(now_ms) + tonumber(lease_ms))
redis.call('ZADD', inflight, expiry_ms, token)
redis.call('PEXPIRE', claim, lease_ms)
redis.call('PEXPIRE', exec, exec_ttl_ms)
redis.call('ZADD', priority, 'XX', expiry_ms, card_id)
redis.call('ZADD', queue, 'XX', expiry_ms, card_id)
return 1
