-- KEYS[1] is the stream, ARGV[1] the group, ARGV[2] the consumer. Every command goes through redis.pcall and its error
-- table is returned as it is, so that the caller sees the server's own code (NOGROUP, OOM) on every version.
local key, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local function failed(reply)
  return type(reply) == 'table' and reply.err ~= nil
end

-- Whether the consumer still owns the entry, and the error reply where there is one.
local function owns(id)
  local rows = redis.pcall('XPENDING', key, group, id, id, '1', consumer)
  if failed(rows) then return false, rows end
  return #rows > 0, nil
end

