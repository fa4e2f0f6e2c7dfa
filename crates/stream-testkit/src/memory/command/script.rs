//! `EVAL`, `EVALSHA` and `SCRIPT`: the scripts of the library, each carried out as the commands that it calls.
//!
//! What must stay true: every function here does what the Lua source of the same name does, step by step; the
//! conformance test runs both.

use bytes::Bytes;
use stream_redis::{ServerError, Value};

use super::super::args::int;
use super::super::db::Db;
use super::super::fault::Label;
use super::super::profile::Profile;
use super::super::reply::{Reply, count, error, no_permission_in_script, not_an_integer, ok, syntax};
use super::super::script::{Known, find, hash};

pub(super) fn eval(db: &mut Db, args: &[Bytes]) -> Reply {
    let script = find(false, &args[1]).ok_or_else(foreign)?;
    db.scripts.insert(hash(script));
    run(db, script, args)
}

pub(super) fn evalsha(db: &mut Db, args: &[Bytes]) -> Reply {
    let script = find(true, &args[1]).filter(|script| db.scripts.contains(&hash(script)));
    let script = script.ok_or_else(|| no_script(db.profile))?;
    run(db, script, args)
}

/// `SCRIPT LOAD`, `EXISTS` and `FLUSH`.
pub(super) fn script(db: &mut Db, args: &[Bytes]) -> Reply {
    match args[1].to_ascii_lowercase().as_slice() {
        b"load" if args.len() == 3 => {
            let script = find(false, &args[2]).ok_or_else(foreign)?;
            db.scripts.insert(hash(script));
            Ok(Value::bulk(hash(script)))
        }
        b"exists" => {
            let known = |arg: &Bytes| find(true, arg).is_some_and(|script| db.scripts.contains(&hash(script)));
            Ok(Value::Array(args[2..].iter().map(|arg| Value::Int(i64::from(known(arg)))).collect()))
        }
        b"flush" => {
            db.scripts.clear();
            Ok(ok())
        }
        _ => Err(syntax()),
    }
}

fn run(db: &mut Db, script: Known, args: &[Bytes]) -> Reply {
    let keys = int(&args[2]).ok_or_else(not_an_integer)?;
    let keys = usize::try_from(keys).map_err(|_| error("ERR Number of keys can't be negative"))?;
    if args.len() - 3 < keys {
        return Err(error("ERR Number of keys can't be greater than number of args"));
    }
    let (keys, args) = args[3..].split_at(keys);
    let ([key, ..], [group, consumer, rest @ ..]) = (keys, args) else { return Err(broken()) };
    let mut call = Call { db, key, group, consumer };
    match script.name() {
        "renew" => call.renew(rest),
        "hand_back" => call.hand_back(rest),
        "take" => call.take(rest),
        "acknowledge" => call.acknowledge(rest),
        "dead_letter" => call.dead_letter(keys.get(1).ok_or_else(broken)?, rest),
        "acknowledge_delete" => call.acknowledge_delete(rest),
        "dead_letter_hash" => {
            let [_, set, hash] = keys else { return Err(broken()) };
            call.dead_letter_hash(set, hash, rest)
        }
        "remove_consumer" => call.remove_consumer(rest.first()),
        "destroy_group" => call.destroy_group(),
        "publish_once" => call.publish_once(keys.get(1).ok_or_else(broken)?, rest),
        _ => Err(foreign()),
    }
}

/// One run of a script.
struct Call<'a> {
    db: &'a mut Db,
    key: &'a Bytes,
    group: &'a Bytes,
    consumer: &'a Bytes,
}

impl Call<'_> {
    fn renew(&mut self, ids: &[Bytes]) -> Reply {
        let ([first, ..], [.., last]) = (ids, ids) else { return Ok(lists([Vec::new(), Vec::new(), Vec::new()])) };
        let own = first_columns(self.pending(first, last, i64::MAX)?);
        let (own, lost): (Vec<Bytes>, Vec<Bytes>) = ids.iter().cloned().partition(|id| own.contains(id));
        let (mut lost_to_others, mut gone) = (Vec::new(), Vec::new());
        for id in lost {
            if self.is_gone(&id) { gone.push(id) } else { lost_to_others.push(id) }
        }
        let mut deleted = Vec::new();
        if !own.is_empty() {
            let claimed = elements(self.claim(&own, &["JUSTID"])?);
            deleted =
                own.into_iter().filter(|id| !claimed.iter().any(|claimed| claimed.as_bytes() == Some(id))).collect();
        }
        Ok(lists([lost_to_others, deleted, gone]))
    }

    fn hand_back(&mut self, args: &[Bytes]) -> Reply {
        let (idle, pairs) = args.split_first().ok_or_else(broken)?;
        let (mut handed_back, mut deleted) = (0, Vec::new());
        for [id, deliveries] in pairs.as_chunks::<2>().0 {
            if self.owns(id)? {
                let options = ["IDLE", utf8(idle)?, "RETRYCOUNT", utf8(deliveries)?, "JUSTID"];
                let claimed = elements(self.claim(std::slice::from_ref(id), &options)?).len();
                handed_back += claimed;
                if claimed == 0 {
                    deleted.push(Value::Bulk(id.clone()));
                }
            }
        }
        deleted.insert(0, count(handed_back));
        Ok(Value::Array(deleted))
    }

    fn take(&mut self, args: &[Bytes]) -> Reply {
        let (bodies, pairs) = args.split_first().ok_or_else(broken)?;
        let bodies = bodies.as_ref() == b"1";
        let mut taken = Vec::new();
        for [id, deliveries] in pairs.as_chunks::<2>().0 {
            if !self.owns(id)? {
                taken.push(Value::Int(0));
                continue;
            }
            let options = ["RETRYCOUNT", utf8(deliveries)?, "JUSTID"];
            let found = if bodies {
                self.claim(std::slice::from_ref(id), &options[..2])?
            } else {
                self.command(&[b"XRANGE", self.key.clone().as_ref(), id, id, b"COUNT", b"1"])?
            };
            taken.push(match elements(found).into_iter().next() {
                None | Some(Value::Nil) => {
                    self.acknowledge_one(id)?;
                    Value::Int(-1)
                }
                Some(entry) if bodies => entry,
                Some(_) => {
                    self.claim(std::slice::from_ref(id), &options)?;
                    Value::Int(1)
                }
            });
        }
        Ok(Value::Array(taken))
    }

    fn acknowledge(&mut self, ids: &[Bytes]) -> Reply {
        let (mut own, mut lost) = (Vec::new(), Vec::new());
        for id in ids {
            if self.owns(id)? { own.push(id) } else { lost.push(id.clone()) }
        }
        for id in own {
            self.acknowledge_one(id)?;
        }
        Ok(texts(lost))
    }

    fn acknowledge_delete(&mut self, ids: &[Bytes]) -> Reply {
        let key = self.key;
        let groups = self.command(&[b"XINFO", b"GROUPS", key]);
        let alone = groups.is_ok_and(|groups| elements(groups).len() == 1);
        let lost = self.acknowledge(ids)?;
        let kept = elements(lost.clone());
        for id in ids.iter().filter(|id| alone && !kept.contains(&Value::Bulk((*id).clone()))) {
            let _ = self.command(&[b"XDEL", key, id]);
        }
        Ok(lost)
    }

    fn dead_letter(&mut self, dead: &Bytes, args: &[Bytes]) -> Reply {
        let [id, max_len, fields @ ..] = args else { return Err(broken()) };
        if !self.owns(id)? {
            return Ok(Value::Nil);
        }
        let mut add: Vec<&[u8]> = vec![b"XADD", dead];
        if max_len.as_ref() != b"0" {
            add.extend([b"MAXLEN", b"~".as_slice(), max_len]);
        }
        add.push(b"*");
        add.extend(fields.iter().map(Bytes::as_ref));
        let reply = self.command(&add)?;
        self.acknowledge_one(id)?;
        Ok(reply)
    }

    fn dead_letter_hash(&mut self, set: &Bytes, hash: &Bytes, args: &[Bytes]) -> Reply {
        let [id, fields @ ..] = args else { return Err(broken()) };
        if !self.owns(id)? {
            return Ok(Value::Int(0));
        }
        self.command(&[b"SADD", set, hash])?;
        let mut write: Vec<&[u8]> = vec![b"HSET", hash];
        write.extend(fields.iter().map(Bytes::as_ref));
        self.command(&write)?;
        self.acknowledge_one(id)?;
        Ok(Value::Int(1))
    }

    fn remove_consumer(&mut self, idle: Option<&Bytes>) -> Reply {
        let (key, group, consumer) = (self.key, self.group, self.consumer);
        self.command(&[b"XINFO", b"CONSUMERS", key, group])?;
        let (now, least) = (self.db.now, idle.map_or(Ok(i64::MIN), |idle| int(idle).ok_or_else(broken))?);
        let consumers = self.db.group(key, group)?.map(|group| &group.consumers);
        let over = consumers
            .and_then(|consumers| consumers.get(consumer))
            .is_some_and(|one| one.pending.is_empty() && (now - one.seen_at).max(0) >= least);
        if over {
            self.command(&[b"XGROUP", b"DELCONSUMER", key, group, consumer])?;
        }
        Ok(Value::Int(i64::from(over)))
    }

    /// The second argument is the id that was delivered last.
    fn destroy_group(&mut self) -> Reply {
        let (key, group, last) = (self.key, self.group, self.consumer);
        self.command(&[b"XINFO", b"GROUPS", key])?;
        let abandoned = self.db.group(key, group)?.is_some_and(|group| {
            group.consumers.is_empty() && group.pending.is_empty() && group.last_id.to_string().as_bytes() == last
        });
        if abandoned {
            self.command(&[b"XGROUP", b"DESTROY", key, group])?;
        }
        Ok(Value::Int(i64::from(abandoned)))
    }

    /// The first argument is for how many seconds the marker counts, the second who asks.
    fn publish_once(&mut self, marker: &Bytes, entry: &[Bytes]) -> Reply {
        let (seconds, asker) = (self.group.clone(), self.consumer.clone());
        if let Value::Bulk(held) = self.command(&[b"GET", marker])? {
            // What begins with anything but a word and a space is nobody's.
            let space = held.iter().position(u8::is_ascii_whitespace).filter(|at| *at > 0 && held[*at] == b' ');
            let own = space.filter(|at| held[at + 1..] == asker && !asker.is_empty());
            let own = own.map(|at| Value::Bulk(held.slice(..at)));
            return Ok(own.unwrap_or(Value::Nil));
        }
        self.command(&[b"SET", marker, b"1", b"EX", &seconds])?;
        let mut add: Vec<&[u8]> = vec![b"XADD", self.key];
        add.extend(entry.iter().map(Bytes::as_ref));
        let id = match self.command(&add) {
            Ok(id) => id,
            Err(error) => {
                // Whether it could be deleted changes nothing about the answer.
                let _ = self.command(&[b"DEL", marker]);
                return Err(error);
            }
        };
        let value = [id.as_bytes().unwrap_or_default(), b" ", &asker].concat();
        self.command(&[b"SET", marker, &value, b"EX", &seconds])?;
        Ok(id)
    }

    /// Whether it is pending nowhere, and not in the stream.
    fn is_gone(&mut self, id: &Bytes) -> bool {
        let (key, group) = (self.key, self.group);
        let nothing = |reply: Reply| reply.is_ok_and(|found| elements(found).is_empty());
        nothing(self.command(&[b"XPENDING", key, group, id, id, b"1"]))
            && nothing(self.command(&[b"XRANGE", key, id, id, b"COUNT", b"1"]))
    }

    fn owns(&mut self, id: &Bytes) -> Result<bool, ServerError> {
        Ok(!elements(self.pending(id, id, 1)?).is_empty())
    }

    fn pending(&mut self, first: &Bytes, last: &Bytes, limit: i64) -> Reply {
        let (key, group, consumer) = (self.key, self.group, self.consumer);
        self.command(&[b"XPENDING", key, group, first, last, limit.to_string().as_bytes(), consumer])
    }

    fn claim(&mut self, ids: &[Bytes], options: &[&str]) -> Reply {
        let mut args: Vec<&[u8]> = vec![b"XCLAIM", self.key, self.group, self.consumer, b"0"];
        args.extend(ids.iter().map(Bytes::as_ref));
        args.extend(options.iter().map(|option| option.as_bytes()));
        self.command(&args)
    }

    fn acknowledge_one(&mut self, id: &Bytes) -> Reply {
        let (key, group) = (self.key, self.group);
        self.command(&[b"XACK", key, group, id])
    }

    /// Calls one command, as `redis.pcall` does.
    fn command(&mut self, args: &[&[u8]]) -> Reply {
        let args: Vec<Bytes> = args.iter().map(|arg| Bytes::copy_from_slice(arg)).collect();
        let label = Label::of(&args);
        if label.is_denied(&self.db.denied) {
            return Err(no_permission_in_script(&label.acl, self.db.profile));
        }
        if !super::may_call(&args) {
            return Err(wrong_call(self.db.profile));
        }
        super::reply(self.db, &args[0].to_ascii_lowercase(), &args)
    }
}

fn elements(value: Value) -> Vec<Value> {
    if let Value::Array(values) = value { values } else { Vec::new() }
}

fn first_columns(rows: Value) -> std::collections::BTreeSet<Bytes> {
    let first = |row| match elements(row).into_iter().next() {
        Some(Value::Bulk(id)) => Some(id),
        _ => None,
    };
    elements(rows).into_iter().filter_map(first).collect()
}

fn texts(ids: Vec<Bytes>) -> Value {
    Value::Array(ids.into_iter().map(Value::Bulk).collect())
}

fn lists(of: [Vec<Bytes>; 3]) -> Value {
    Value::Array(of.map(texts).into())
}

fn utf8(arg: &[u8]) -> Result<&str, ServerError> {
    std::str::from_utf8(arg).map_err(|_| not_an_integer())
}

/// The texts of Valkey and of Redis.
fn no_script(profile: Profile) -> ServerError {
    error(match profile {
        Profile::Redis72Plus => "NOSCRIPT No matching script.",
        _ => "NOSCRIPT No matching script. Please use EVAL.",
    })
}

/// A command with too few arguments, of which scripts are told in words of their own.
fn wrong_call(profile: Profile) -> ServerError {
    error(match profile {
        Profile::Redis62 => "ERR Wrong number of args calling Redis command From Lua script",
        Profile::Redis72Plus => "ERR Wrong number of args calling command from script",
        _ => "ERR Wrong number of args calling Redis command from script",
    })
}

fn foreign() -> ServerError {
    error("ERR the in-memory server knows only the library's scripts")
}

/// The arguments are not what the script takes: a mistake of the caller.
fn broken() -> ServerError {
    error("ERR Error running script: wrong arguments")
}
