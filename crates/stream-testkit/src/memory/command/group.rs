//! Groups and their consumers: `XGROUP`.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{Args, loose_id, strict_id};
use super::super::db::{Change, Db};
use super::super::group::Group;
use super::super::profile::Profile;
use super::super::reply::{Reply, count, error, key_required, no_group_in_stream, ok, subcommand_syntax};
use super::need_sub;

#[derive(Debug, Default)]
struct Options {
    mkstream: bool,
    entries_read: Option<i64>,
}

pub(super) fn xgroup(db: &mut Db, args: &[Bytes]) -> Reply {
    let profile = db.profile;
    let subcommand = args[1].to_ascii_lowercase();
    let wrong = || subcommand_syntax("XGROUP", &args[1], profile);
    let arity = match subcommand.as_slice() {
        b"create" | b"setid" => -5,
        b"createconsumer" | b"delconsumer" => 5,
        b"destroy" => 4,
        _ if profile.subcommands_are_commands() => {
            let name = String::from_utf8_lossy(&args[1]);
            return Err(error(&format!("ERR unknown subcommand '{name}'. Try XGROUP HELP.")));
        }
        // Redis 6.2 looks the key up before it finds that there is no such subcommand.
        _ => -2,
    };
    need_sub(args, arity, profile)?;
    if args.len() < 4 {
        return Err(wrong());
    }
    let options = Options::parse(&subcommand, args, profile)?;
    let (key, name) = (&args[2], &args[3]);
    let exists = db.stream(key)?.is_some();
    if !exists && !options.mkstream {
        return Err(key_required());
    }
    let group_exists = db.group(key, name)?.is_some();
    if !group_exists && matches!(subcommand.as_slice(), b"setid" | b"createconsumer" | b"delconsumer") {
        return Err(no_group_in_stream(key, name));
    }
    match (subcommand.as_slice(), args.len()) {
        (b"create", 7..) | (b"setid", 6..) if profile == Profile::Redis62 => Err(wrong()),
        (b"create", 5..) => create(db, key, name, &args[4], &options),
        (b"setid", 5..) => set_id(db, key, name, &args[4], &options),
        (b"destroy", 4) => destroy(db, key, name),
        (b"createconsumer", 5) => {
            let now = db.now;
            let new = db.group_mut(key, name)?.is_some_and(|group| group.create_consumer(&args[4], now));
            Ok(Value::Int(i64::from(new)))
        }
        (b"delconsumer", 5) => Ok(count(db.group_mut(key, name)?.map_or(0, |group| group.delete_consumer(&args[4])))),
        _ => Err(wrong()),
    }
}

impl Options {
    fn parse(subcommand: &[u8], args: &[Bytes], profile: Profile) -> Result<Self, ServerError> {
        let mut options = Self::default();
        let (create, set_id) = (subcommand == b"create", subcommand == b"setid");
        if profile == Profile::Redis62 {
            // Anything but a wrong word for MKSTREAM is found only after the key and the group were looked up.
            options.mkstream = create && args.len() == 6;
            if options.mkstream && !args[5].eq_ignore_ascii_case(b"MKSTREAM") {
                return Err(subcommand_syntax("XGROUP", &args[1], profile));
            }
            return Ok(options);
        }
        let mut rest = Args::after(args, 5);
        while rest.len() > 0 {
            if create && rest.option("MKSTREAM", 0) {
                options.mkstream = true;
            } else if (create || set_id) && rest.option("ENTRIESREAD", 1) {
                let number = rest.int()?;
                if number < -1 {
                    return Err(error("ERR value for ENTRIESREAD must be positive or -1"));
                }
                options.entries_read = (number >= 0).then_some(number);
            } else {
                return Err(subcommand_syntax("XGROUP", &args[1], profile));
            }
        }
        Ok(options)
    }
}

fn create(db: &mut Db, key: &Bytes, name: &Bytes, start: &[u8], options: &Options) -> Reply {
    let last = db.stream(key)?.map_or(EntryId::ZERO, |stream| stream.last_id);
    let start = if start == b"$" { last } else { strict_id(start, 0)? };
    let stream = db.stream_or_create(key)?;
    if stream.groups.contains_key(name) {
        return Err(error("BUSYGROUP Consumer Group name already exists"));
    }
    stream.groups.insert(name.clone(), Group::new(start, options.entries_read));
    Ok(ok())
}

fn set_id(db: &mut Db, key: &Bytes, name: &Bytes, id: &[u8], options: &Options) -> Reply {
    let last = db.stream(key)?.map_or(EntryId::ZERO, |stream| stream.last_id);
    let id = if id == b"$" { last } else { loose_id(id, 0)? };
    if let Some(group) = db.group_mut(key, name)? {
        group.last_id = id;
        group.entries_read = options.entries_read;
    }
    Ok(ok())
}

fn destroy(db: &mut Db, key: &Bytes, name: &Bytes) -> Reply {
    let destroyed = db.stream_mut(key)?.is_some_and(|stream| stream.groups.remove(name).is_some());
    if destroyed {
        db.signal(key, Change::Stream);
    }
    Ok(Value::Int(i64::from(destroyed)))
}
