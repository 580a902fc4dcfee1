-- release: give back a claim whose publication failed; its card is due at once where it stands.
--
-- KEYS
--   1 claim     STRING  token of the card's present claim
--   2 inflight  ZSET    token -> lease expiry, ms
--   3 priority  ZSET    card id -> earliest due, ms
--   4 queue     ZSET    the same, normal queue
-- ARGV
--   1 token     the claim to give back
--   2 card_id   the card
--   3 now_ms    the time
-- RETURNS
--   1   given back
--   0   the claim is not this token; nothing is changed

local claim, inflight, priority, queue = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, card_id, now_ms = ARGV[1], ARGV[2], ARGV[3]

if not tonumber(now_ms) then return redis.error_reply('release: now_ms must be a number') end

if redis.pcall('GET', claim) ~= token then return 0 end

redis.call('ZREM', inflight, token)
redis.call('DEL', claim)
redis.call('ZADD', priority, 'XX', now_ms, card_id)
redis.call('ZADD', queue, 'XX', now_ms, card_id)
return 1
