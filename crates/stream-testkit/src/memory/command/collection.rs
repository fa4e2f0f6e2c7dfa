//! Hashes and sets, as far as dead letters in them need: `HSET`, `HGET`, `HGETALL`, `SADD`, `SREM`, `SCARD`, `SISMEMBER`
//! and `SSCAN`. A scan gives everything at once, as real servers do for small sets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use stream_redis::{ServerError, Value};

use super::super::args::Args;
use super::super::db::{Db, Object};
use super::super::reply::{Reply, arity, count, error, syntax, wrong_type};

fn hash<'a>(db: &'a Db, key: &[u8]) -> Result<Option<&'a BTreeMap<Bytes, Bytes>>, ServerError> {
    match db.keys.get(key) {
        None => Ok(None),
        Some(Object::Hash(hash)) => Ok(Some(hash)),
        Some(_) => Err(wrong_type()),
    }
}

fn set<'a>(db: &'a Db, key: &[u8]) -> Result<Option<&'a BTreeSet<Bytes>>, ServerError> {
    match db.keys.get(key) {
        None => Ok(None),
        Some(Object::Set(set)) => Ok(Some(set)),
        Some(_) => Err(wrong_type()),
    }
}

pub(super) fn hset(db: &mut Db, args: &[Bytes]) -> Reply {
    let (pairs, []) = args[2..].as_chunks::<2>() else { return Err(arity("hset")) };
    let object = db.keys.entry(args[1].clone()).or_insert_with(|| Object::Hash(BTreeMap::new()));
    let Object::Hash(hash) = object else { return Err(wrong_type()) };
    let new = pairs.iter().filter(|[name, value]| hash.insert(name.clone(), value.clone()).is_none());
    Ok(count(new.count()))
}

pub(super) fn hget(db: &mut Db, args: &[Bytes]) -> Reply {
    let value = hash(db, &args[1])?.and_then(|hash| hash.get(&args[2]));
    Ok(value.map_or(Value::Nil, |value| Value::Bulk(value.clone())))
}

pub(super) fn hgetall(db: &mut Db, args: &[Bytes]) -> Reply {
    let pair = |(name, value): (&Bytes, &Bytes)| (Value::Bulk(name.clone()), Value::Bulk(value.clone()));
    Ok(Value::Map(hash(db, &args[1])?.into_iter().flatten().map(pair).collect()))
}

pub(super) fn sadd(db: &mut Db, args: &[Bytes]) -> Reply {
    let object = db.keys.entry(args[1].clone()).or_insert_with(|| Object::Set(BTreeSet::new()));
    let Object::Set(set) = object else { return Err(wrong_type()) };
    Ok(count(args[2..].iter().filter(|member| set.insert((*member).clone())).count()))
}

pub(super) fn srem(db: &mut Db, args: &[Bytes]) -> Reply {
    let (removed, empty) = match db.keys.get_mut(&args[1]) {
        None => (0, false),
        Some(Object::Set(set)) => (args[2..].iter().filter(|member| set.remove(*member)).count(), set.is_empty()),
        Some(_) => return Err(wrong_type()),
    };
    if empty {
        db.remove(&args[1]);
    }
    Ok(count(removed))
}

pub(super) fn scard(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(count(set(db, &args[1])?.map_or(0, BTreeSet::len)))
}

pub(super) fn sismember(db: &mut Db, args: &[Bytes]) -> Reply {
    Ok(Value::Int(i64::from(set(db, &args[1])?.is_some_and(|set| set.contains(&args[2])))))
}

/// `SSCAN key cursor [COUNT number]`; options of a set that is not there are not looked at.
pub(super) fn sscan(db: &mut Db, args: &[Bytes]) -> Reply {
    if std::str::from_utf8(&args[2]).ok().and_then(|cursor| cursor.parse::<u64>().ok()).is_none() {
        return Err(error("ERR invalid cursor"));
    }
    let found = set(db, &args[1])?;
    let mut rest = Args::after(args, 3);
    while found.is_some() && rest.len() > 0 {
        if !rest.option("COUNT", 1) || rest.int()? < 1 {
            return Err(syntax());
        }
    }
    let members = found.into_iter().flatten().map(|member| Value::Bulk(member.clone()));
    Ok(Value::Array(vec![Value::bulk("0"), Value::Array(members.collect())]))
}
