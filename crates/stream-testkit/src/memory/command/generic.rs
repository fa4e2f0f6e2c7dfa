//! The few commands that are not about streams.
#![expect(clippy::unnecessary_wraps, reason = "all commands have the same signature")]

use bytes::Bytes;
use stream_redis::Value;

use super::super::args::Args;
use super::super::db::{Db, Object};
use super::super::profile::Profile;
use super::super::reply::{Reply, count, error, ok, subcommand_syntax, syntax, wrong_type};

pub(super) fn ping(_: &mut Db, args: &[Bytes]) -> Reply {
    Ok(args.get(1).map_or_else(|| Value::bulk("PONG"), |text| Value::Bulk(text.clone())))
}

/// Seconds and microseconds; the model's clock has milliseconds.
pub(super) fn time(db: &mut Db, _: &[Bytes]) -> Reply {
    let (seconds, millis) = (db.now / 1000, db.now % 1000);
    Ok(Value::Array(vec![Value::bulk(seconds.to_string()), Value::bulk((millis * 1000).to_string())]))
}

pub(super) fn exists(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(count(args[1..].iter().filter(|key| db.keys.contains_key(*key)).count()))
}

pub(super) fn kind(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(Value::bulk(match db.keys.get(&args[1]) {
        None => "none",
        Some(Object::Stream(_)) => "stream",
        Some(Object::Text(_)) => "string",
        Some(Object::Hash(_)) => "hash",
        Some(Object::Set(_)) => "set",
    }))
}

pub(super) fn del(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(count(args[1..].iter().filter(|key| db.remove(key)).count()))
}

pub(super) fn get(db: &mut Db, args: &[Bytes]) -> Reply {
    match db.keys.get(&args[1]) {
        None => Ok(Value::Nil),
        Some(Object::Text(text)) => Ok(Value::Bulk(text.value.clone())),
        Some(_) => Err(wrong_type()),
    }
}

/// `SET key value [NX] [PX ms | EX s]`.
pub(super) fn set(db: &mut Db, args: &[Bytes]) -> Reply {
    let (mut only_new, mut expires_at) = (false, None);
    let mut rest = Args::after(args, 3);
    while rest.len() > 0 {
        if rest.option("NX", 0) {
            only_new = true;
        } else if expires_at.is_some() {
            return Err(syntax());
        } else if let Some(unit) = if rest.option("PX", 1) { Some(1) } else { rest.option("EX", 1).then_some(1000) } {
            let millis = rest.int()?.saturating_mul(unit);
            if millis <= 0 {
                return Err(error(match db.profile {
                    Profile::Redis62 => "ERR invalid expire time in set",
                    _ => "ERR invalid expire time in 'set' command",
                }));
            }
            expires_at = Some(db.now.saturating_add(millis));
        } else {
            return Err(syntax());
        }
    }
    if only_new && db.keys.contains_key(&args[1]) {
        return Ok(Value::Nil);
    }
    db.set_text(&args[1], args[2].clone(), expires_at);
    Ok(ok())
}

pub(super) fn flush(db: &mut Db, _: &[Bytes]) -> Reply {
    let keys: Vec<Bytes> = db.keys.keys().cloned().collect();
    for key in keys {
        db.remove(&key);
    }
    Ok(ok())
}

/// Commands about the connection that change nothing in the model.
pub(super) fn fine(_: &mut Db, _: &[Bytes]) -> Reply {
    Ok(ok())
}

pub(super) fn info(db: &mut Db, _: &[Bytes]) -> Reply {
    let version = db.profile.version();
    Ok(Value::bulk(format!(
        "# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n# Replication\r\nrole:master\r\n"
    )))
}

pub(super) fn hello(db: &mut Db, _: &[Bytes]) -> Reply {
    let fields = [
        ("server", Value::bulk("redis")),
        ("version", Value::bulk(db.profile.version())),
        ("proto", Value::Int(3)),
        ("id", Value::Int(1)),
        ("mode", Value::bulk("standalone")),
        ("role", Value::bulk("master")),
        ("modules", Value::Array(Vec::new())),
    ];
    Ok(Value::Map(fields.into_iter().map(|(name, value)| (Value::bulk(name), value)).collect()))
}

/// Nothing is documented: an empty answer from 7.0 on, an unknown subcommand before.
pub(super) fn command(db: &mut Db, args: &[Bytes]) -> Reply {
    match db.profile {
        Profile::Redis62 => Err(subcommand_syntax("COMMAND", args.get(1).map_or(b"", |arg| arg), db.profile)),
        _ => Ok(Value::Map(Vec::new())),
    }
}
