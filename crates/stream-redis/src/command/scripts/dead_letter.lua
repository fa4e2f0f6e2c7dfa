-- Moves the entry ARGV[3] to the dead letters: KEYS[2] is their stream, ARGV[4] its greatest length (about; '0' is
-- unbounded), then names and values. Returns the id over there, or nil where the consumer does not own the entry any more.
local own, err = owns(ARGV[3])
if err then return err end
if not own then return false end

local add = {'XADD', KEYS[2]}
if ARGV[4] ~= '0' then
  add[3], add[4], add[5] = 'MAXLEN', '~', ARGV[4]
end
add[#add + 1] = '*'
for i = 5, #ARGV do add[#add + 1] = ARGV[i] end

-- The dead letter first: if it cannot be written, the entry stays pending.
local id = redis.pcall(unpack(add))
if failed(id) then return id end
local reply = redis.pcall('XACK', key, group, ARGV[3])
if failed(reply) then return reply end
return id
