//! What changes the entries of a stream: `XADD`, `XTRIM`, `XDEL`.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{Args, strict_id};
use super::super::db::{Change, Db};
use super::super::profile::Profile;
use super::super::reply::{Reply, arity, count, error, id_value, syntax};
use super::super::stream::{Keep, Stream, Trim};

/// Entries that `~` removes at most when no `LIMIT` is given.
const DEFAULT_LIMIT: usize = 10_000;

/// The id of a new entry, as asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewId {
    Auto,
    /// `ms-*`.
    AutoSeq(u64),
    Exact(EntryId),
}

#[derive(Debug, Default)]
struct Options {
    trim: Option<Trim>,
    no_mkstream: bool,
    id: Option<NewId>,
}

pub(super) fn xadd(db: &mut Db, args: &[Bytes]) -> Reply {
    let mut rest = Args::after(args, 2);
    let options = Options::parse(&mut rest, true, db.profile)?;
    let fields = rest.rest();
    if fields.is_empty() || fields.len() % 2 == 1 {
        return Err(match db.profile {
            Profile::Redis62 => error("ERR wrong number of arguments for XADD"),
            _ => arity("xadd"),
        });
    }
    let new = options.id.unwrap_or(NewId::Auto);
    if new == NewId::Exact(EntryId::ZERO) {
        return Err(error("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = &args[1];
    if db.stream(key)?.is_none() && options.no_mkstream {
        return Ok(Value::Nil);
    }
    let now = db.now;
    let stream = db.stream_or_create(key)?;
    let id = new_id(stream, new, now)?;
    stream.append(id, fields.to_vec());
    if let Some(trim) = options.trim {
        stream.trim(trim);
    }
    db.signal(key, Change::Stream);
    Ok(id_value(id))
}

pub(super) fn xtrim(db: &mut Db, args: &[Bytes]) -> Reply {
    let options = Options::parse(&mut Args::after(args, 2), false, db.profile)?;
    let stream = db.stream_mut(&args[1])?;
    Ok(count(options.trim.and_then(|trim| stream.map(|stream| stream.trim(trim))).unwrap_or(0)))
}

pub(super) fn xdel(db: &mut Db, args: &[Bytes]) -> Reply {
    let Some(stream) = db.stream_mut(&args[1])? else { return Ok(Value::Int(0)) };
    let ids = args[2..].iter().map(|id| strict_id(id, 0)).collect::<Result<Vec<_>, _>>()?;
    Ok(count(ids.into_iter().filter(|&id| stream.delete(id)).count()))
}

fn new_id(stream: &Stream, new: NewId, now: i64) -> Result<EntryId, ServerError> {
    let last = stream.last_id;
    let Some(next) = last.successor() else {
        return Err(error("ERR The stream has exhausted the last possible ID, unable to add more items"));
    };
    let id = match new {
        NewId::Exact(id) => Some(id),
        NewId::Auto if now as u64 > last.ms() => Some(EntryId::new(now as u64, 0)),
        NewId::Auto => Some(next),
        NewId::AutoSeq(ms) if ms == last.ms() => last.seq().checked_add(1).map(|seq| EntryId::new(ms, seq)),
        NewId::AutoSeq(ms) => Some(EntryId::new(ms, 0)),
    };
    id.filter(|&id| id > last)
        .ok_or_else(|| error("ERR The ID specified in XADD is equal or smaller than the target stream top item"))
}

impl Options {
    /// Takes the options, and for `XADD` the id, from the arguments after the key.
    fn parse(args: &mut Args<'_>, xadd: bool, profile: Profile) -> Result<Self, ServerError> {
        let mut options = Self::default();
        let mut keep = None;
        let mut approximate = false;
        let mut limit = None;
        while args.len() > 0 {
            if xadd && args.rest()[0].as_ref() == b"*" {
                args.next();
                options.id = Some(NewId::Auto);
                break;
            } else if args.option("MAXLEN", 1) {
                once(keep)?;
                approximate = tilde(args);
                let max = args.int()?;
                let max = usize::try_from(max).map_err(|_| error("ERR The MAXLEN argument must be >= 0."))?;
                keep = Some(Keep::Newest(max));
            } else if args.option("MINID", 1) {
                once(keep)?;
                approximate = tilde(args);
                keep = Some(Keep::From(args.id()?));
            } else if args.option("LIMIT", 1) {
                let number = args.int()?;
                limit = Some(usize::try_from(number).map_err(|_| error("ERR The LIMIT argument must be >= 0."))?);
            } else if xadd && args.option("NOMKSTREAM", 0) {
                options.no_mkstream = true;
            } else if xadd {
                options.id = Some(exact_id(args.expect()?, profile)?);
                break;
            } else {
                return Err(syntax());
            }
        }
        if keep.is_none() && limit.is_some_and(|limit| limit > 0) {
            return Err(error("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"));
        }
        if keep.is_none() && !xadd {
            return Err(error("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        if limit.is_some() && !approximate {
            return Err(error("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        let limit = limit.unwrap_or(if approximate { DEFAULT_LIMIT } else { 0 });
        options.trim = keep.map(|keep| Trim { keep, approximate, limit });
        Ok(options)
    }
}

fn once(keep: Option<Keep>) -> Result<(), ServerError> {
    match keep {
        None => Ok(()),
        Some(_) => Err(error("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")),
    }
}

/// Takes `~` or `=`, which must have something after it.
fn tilde(args: &mut Args<'_>) -> bool {
    let approximate = args.option("~", 1);
    if !approximate {
        args.option("=", 1);
    }
    approximate
}

fn exact_id(arg: &[u8], profile: Profile) -> Result<NewId, ServerError> {
    match arg.strip_suffix(b"-*") {
        Some(ms) if profile >= Profile::Redis70 && !ms.contains(&b'-') => Ok(NewId::AutoSeq(strict_id(ms, 0)?.ms())),
        _ => strict_id(arg, 0).map(NewId::Exact),
    }
}
