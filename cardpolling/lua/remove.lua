-- remove: take a card out of polling; an execution under way ends without putting it back.
--
-- KEYS
--   1 priority  ZSET  card id -> earliest due, ms
--   2 queue     ZSET  the same, normal queue
--   3 due       HASH  due times and counts of the card
-- ARGV
--   1 card_id   the card
-- RETURNS
--   1   the card stood in a queue
--   0   it stood in none

local priority, queue, due = KEYS[1], KEYS[2], KEYS[3]
local card_id = ARGV[1]

local stood = redis.call('ZREM', priority, card_id) + redis.call('ZREM', queue, card_id)
redis.call('DEL', due)
return stood > 0 and 1 or 0
