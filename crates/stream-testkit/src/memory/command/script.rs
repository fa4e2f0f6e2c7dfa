//! `EVAL`, `EVALSHA` and `SCRIPT`: the scripts of the library, carried out natively with what their commands would do.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{int, strict_id};
use super::super::db::Db;
use super::super::profile::Profile;
use super::super::reply::{Reply, count, error, id_value, no_key_or_group, not_an_integer, ok};
use super::super::script::{Known, find, hash};
use super::{append, claim, pending};

pub(super) fn eval(db: &mut Db, args: &[Bytes]) -> Reply {
    let script =
        find(false, &args[1]).ok_or_else(|| error("ERR the in-memory server knows only the library's scripts"))?;
    db.scripts.insert(hash(script));
    run(db, script, args)
}

pub(super) fn evalsha(db: &mut Db, args: &[Bytes]) -> Reply {
    let profile = db.profile;
    let missing = || no_script(profile);
    let script = find(true, &args[1]).ok_or_else(missing)?;
    if !db.scripts.contains(&hash(script)) {
        return Err(missing());
    }
    run(db, script, args)
}

/// `SCRIPT LOAD`, `EXISTS` and `FLUSH`.
pub(super) fn script(db: &mut Db, args: &[Bytes]) -> Reply {
    match args[1].to_ascii_lowercase().as_slice() {
        b"load" if args.len() == 3 => {
            let script = find(false, &args[2]);
            let script = script.ok_or_else(|| error("ERR the in-memory server knows only the library's scripts"))?;
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
        _ => Err(error("ERR unknown subcommand. Try SCRIPT HELP.")),
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
    let call = Call { key, group, consumer };
    if db.group(key, group)?.is_none() {
        return Err(no_key_or_group(key, group));
    }
    match script.name() {
        "renew" => call.renew(db, rest),
        "hand_back" => call.hand_back(db, rest),
        "take" => call.take(db, rest),
        "acknowledge" => call.acknowledge(db, rest),
        "dead_letter" => call.dead_letter(db, keys.get(1).ok_or_else(broken)?, rest),
        "remove_consumer" => call.remove_consumer(db),
        _ => Err(broken()),
    }
}

/// What every script is about.
#[derive(Clone, Copy)]
struct Call<'a> {
    key: &'a Bytes,
    group: &'a Bytes,
    consumer: &'a Bytes,
}

impl Call<'_> {
    fn renew(self, db: &mut Db, ids: &[Bytes]) -> Reply {
        let (own, lost) = self.split(db, ids)?;
        if !own.is_empty() {
            self.claim(db, &own, &["JUSTID"])?;
        }
        Ok(texts(lost))
    }

    fn hand_back(self, db: &mut Db, args: &[Bytes]) -> Reply {
        let (idle, pairs) = args.split_first().ok_or_else(broken)?;
        let mut handed_back = 0;
        for (id, deliveries) in pairs_of(pairs)? {
            if self.owns(db, id)? {
                let (idle, deliveries) = (utf8(idle)?, utf8(deliveries)?);
                self.claim(db, std::slice::from_ref(id), &["IDLE", idle, "RETRYCOUNT", deliveries, "JUSTID"])?;
                handed_back += 1;
            }
        }
        Ok(count(handed_back))
    }

    fn take(self, db: &mut Db, args: &[Bytes]) -> Reply {
        let (want_body, pairs) = args.split_first().ok_or_else(broken)?;
        let mut replies = Vec::new();
        for (id, deliveries) in pairs_of(pairs)? {
            replies.push(if !self.owns(db, id)? {
                Value::Int(0)
            } else if !self.is_there(db, id)? {
                self.forget(db, id)?;
                Value::Int(-1)
            } else {
                let reply = self.claim(db, std::slice::from_ref(id), &["RETRYCOUNT", utf8(deliveries)?])?;
                match reply {
                    Value::Array(mut entries) if want_body.as_ref() == b"1" => entries.pop().unwrap_or(Value::Int(-1)),
                    _ => Value::Int(1),
                }
            });
        }
        Ok(Value::Array(replies))
    }

    fn acknowledge(self, db: &mut Db, ids: &[Bytes]) -> Reply {
        let (own, lost) = self.split(db, ids)?;
        for id in &own {
            self.forget(db, id)?;
        }
        Ok(texts(lost))
    }

    fn dead_letter(self, db: &mut Db, dead: &Bytes, args: &[Bytes]) -> Reply {
        let [id, max_len, fields @ ..] = args else { return Err(broken()) };
        if !self.owns(db, id)? {
            return Ok(Value::Nil);
        }
        let mut add = vec![Bytes::from_static(b"XADD"), dead.clone()];
        if max_len.as_ref() != b"0" {
            add.extend([Bytes::from_static(b"MAXLEN"), max_len.clone()]);
        }
        add.push(Bytes::from_static(b"*"));
        add.extend_from_slice(fields);
        let reply = append::xadd(db, &add)?;
        self.forget(db, id)?;
        Ok(reply)
    }

    fn remove_consumer(self, db: &mut Db) -> Reply {
        let removed = db.group_mut(self.key, self.group)?.is_some_and(|group| {
            let empty = group.consumers.get(self.consumer).is_some_and(|consumer| consumer.pending.is_empty());
            if empty {
                group.delete_consumer(self.consumer);
            }
            empty
        });
        Ok(Value::Int(i64::from(removed)))
    }

    /// Splits ids into own ones and others.
    fn split(self, db: &Db, ids: &[Bytes]) -> Result<(Vec<Bytes>, Vec<Bytes>), ServerError> {
        let (mut own, mut lost) = (Vec::new(), Vec::new());
        for id in ids {
            if self.owns(db, id)? { own.push(id.clone()) } else { lost.push(id.clone()) }
        }
        Ok((own, lost))
    }

    fn owns(self, db: &Db, id: &[u8]) -> Result<bool, ServerError> {
        let id = strict_id(id, 0)?;
        Ok(db.group(self.key, self.group)?.is_some_and(|group| group.owns(self.consumer, id)))
    }

    fn is_there(self, db: &Db, id: &[u8]) -> Result<bool, ServerError> {
        let id: EntryId = strict_id(id, 0)?;
        Ok(db.stream(self.key)?.is_some_and(|stream| stream.entries.contains_key(&id)))
    }

    fn claim(self, db: &mut Db, ids: &[Bytes], options: &[&str]) -> Reply {
        let mut args = vec![Bytes::from_static(b"XCLAIM"), self.key.clone(), self.group.clone(), self.consumer.clone()];
        args.push(Bytes::from_static(b"0"));
        args.extend_from_slice(ids);
        args.extend(options.iter().map(|option| Bytes::copy_from_slice(option.as_bytes())));
        claim::xclaim(db, &args)
    }

    fn forget(self, db: &mut Db, id: &Bytes) -> Reply {
        pending::xack(db, &[Bytes::from_static(b"XACK"), self.key.clone(), self.group.clone(), id.clone()])
    }
}

fn pairs_of(args: &[Bytes]) -> Result<impl Iterator<Item = (&Bytes, &Bytes)>, ServerError> {
    let (pairs, rest) = args.as_chunks::<2>();
    if rest.is_empty() { Ok(pairs.iter().map(|[id, number]| (id, number))) } else { Err(broken()) }
}

fn texts(ids: Vec<Bytes>) -> Value {
    Value::Array(ids.into_iter().map(|id| strict_id(&id, 0).map_or(Value::Bulk(id), id_value)).collect())
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

/// The arguments are not what the script takes: a mistake of the caller.
fn broken() -> ServerError {
    error("ERR Error running script: wrong arguments")
}
