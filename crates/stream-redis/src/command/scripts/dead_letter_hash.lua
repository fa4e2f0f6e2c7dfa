-- Moves the entry ARGV[3] to the dead letters: KEYS[2] is their set, KEYS[3] the hash of this one, and ARGV[4..] are the
-- hash's names and values. Returns 1, or 0 where the consumer does not own the entry any more.
local own, err = owns(ARGV[3])
if err then return err end
if not own then return 0 end

-- The set first: where its key holds something else, no hash is left behind that nobody would see.
local reply = redis.pcall('SADD', KEYS[2], KEYS[3])
if failed(reply) then return reply end
local write = {'HSET', KEYS[3]}
for i = 4, #ARGV do write[#write + 1] = ARGV[i] end
reply = redis.pcall(unpack(write))
if failed(reply) then return reply end
reply = redis.pcall('XACK', key, group, ARGV[3])
if failed(reply) then return reply end
return 1
