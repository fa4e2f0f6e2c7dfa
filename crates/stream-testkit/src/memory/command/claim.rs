//! Taking over pending entries: `XCLAIM`, `XAUTOCLAIM`.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::super::args::{Args, int, range_start, strict_id};
use super::super::db::Db;
use super::super::profile::Profile;
use super::super::reply::{Reply, entry_value, error, id_value, no_key_or_group, syntax};
use super::super::stream::Stream;

/// Entries that `XAUTOCLAIM` looks at for each one that it may return.
const SCAN_FACTOR: usize = 10;

/// How `XCLAIM` changes the entries it takes.
#[derive(Debug, Default)]
pub(super) struct ClaimOptions {
    /// Milliseconds since 1970; now if not given.
    delivered_at: Option<i64>,
    deliveries: Option<i64>,
    force: bool,
    just_id: bool,
    last_id: EntryId,
}

pub(super) fn xclaim(db: &mut Db, args: &[Bytes]) -> Reply {
    let (key, name, consumer) = (&args[1], &args[2], &args[3]);
    let (now, profile) = (db.now, db.profile);
    let stream = db.stream_mut(key)?.filter(|stream| stream.groups.contains_key(name));
    let stream = stream.ok_or_else(|| no_key_or_group(key, name))?;
    let min_idle = int(&args[4]).ok_or_else(|| error("ERR Invalid min-idle-time argument for XCLAIM"))?.max(0);
    let ids: Vec<EntryId> = args[5..].iter().map_while(|arg| strict_id(arg, 0).ok()).collect();
    let options = ClaimOptions::parse(&mut Args::after(args, 5 + ids.len()), now)?;
    Ok(claim(stream, name, consumer, min_idle, &ids, &options, now, profile))
}

impl ClaimOptions {
    fn parse(args: &mut Args<'_>, now: i64) -> Result<Self, ServerError> {
        let mut options = Self::default();
        while args.len() > 0 {
            if args.option("FORCE", 0) {
                options.force = true;
            } else if args.option("JUSTID", 0) {
                options.just_id = true;
            } else if args.option("IDLE", 1) {
                let idle = args.int_or("ERR Invalid IDLE option argument for XCLAIM")?;
                options.delivered_at = Some(now.saturating_sub(idle));
            } else if args.option("TIME", 1) {
                options.delivered_at = Some(args.int_or("ERR Invalid TIME option argument for XCLAIM")?);
            } else if args.option("RETRYCOUNT", 1) {
                let count = args.int_or("ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                options.deliveries = (count >= 0).then_some(count);
            } else if args.option("LASTID", 1) {
                options.last_id = args.id()?;
            } else {
                let option = String::from_utf8_lossy(args.expect()?);
                return Err(error(&format!("ERR Unrecognized XCLAIM option '{option}'")));
            }
        }
        // A time before 1970 or in the future stands for now.
        options.delivered_at = options.delivered_at.filter(|at| (0..=now).contains(at));
        Ok(options)
    }
}

#[expect(clippy::too_many_arguments, reason = "the operands of the command, used by one caller")]
fn claim(
    stream: &mut Stream,
    name: &Bytes,
    consumer: &Bytes,
    min_idle: i64,
    ids: &[EntryId],
    options: &ClaimOptions,
    now: i64,
    profile: Profile,
) -> Value {
    let Stream { entries, groups, .. } = stream;
    let Some(group) = groups.get_mut(name) else { return Value::Array(Vec::new()) };
    group.last_id = group.last_id.max(options.last_id);
    if profile.consumers_are_eager() {
        group.saw(consumer, now);
    }
    let mut claimed = Vec::new();
    for &id in ids {
        let fields = entries.get(&id);
        if fields.is_none() && profile.claims_clean_up() {
            group.forget(id);
            continue;
        }
        let deliveries = match group.pending.get(&id) {
            Some(pending) if min_idle > 0 && now - pending.delivered_at < min_idle => continue,
            Some(pending) => pending.deliveries,
            // An entry that is made pending by force starts at one delivery, before this one is counted.
            None if options.force && fields.is_some() => 1,
            None => continue,
        };
        let deliveries = options.deliveries.unwrap_or(deliveries + i64::from(!options.just_id));
        group.saw(consumer, now);
        group.give(id, consumer, options.delivered_at.unwrap_or(now), deliveries);
        group.served(consumer, now);
        claimed.push(claimed_value(id, fields, options.just_id));
    }
    Value::Array(claimed)
}

pub(super) fn xautoclaim(db: &mut Db, args: &[Bytes]) -> Reply {
    let (key, name, consumer) = (&args[1], &args[2], &args[3]);
    let (now, profile) = (db.now, db.profile);
    let min_idle = int(&args[4]).ok_or_else(|| error("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?.max(0);
    let start = range_start(&args[5])?;
    let (mut count, mut just_id) = (100, false);
    let mut rest = Args::after(args, 6);
    while rest.len() > 0 {
        if rest.option("COUNT", 1) {
            let message = "ERR COUNT must be > 0";
            count = usize::try_from(rest.int_or(message)?).ok().filter(|&n| n > 0).ok_or_else(|| error(message))?;
        } else if rest.option("JUSTID", 0) {
            just_id = true;
        } else {
            return Err(syntax());
        }
    }
    let stream = db.stream_mut(key)?.filter(|stream| stream.groups.contains_key(name));
    let Stream { entries, groups, .. } = stream.ok_or_else(|| no_key_or_group(key, name))?;
    let Some(group) = groups.get_mut(name) else { return Err(no_key_or_group(key, name)) };
    if profile.consumers_are_eager() {
        group.saw(consumer, now);
    }
    // One more than may be looked at: the cursor.
    let most = count.saturating_mul(SCAN_FACTOR);
    let ids: Vec<EntryId> = group.pending.range(start..).map(|(id, _)| *id).take(most.saturating_add(1)).collect();
    let (mut scanned, mut claimed, mut deleted) = (0, Vec::new(), Vec::new());
    for &id in ids.iter().take(most) {
        if claimed.len() + deleted.len() == count {
            break;
        }
        scanned += 1;
        let fields = entries.get(&id);
        if fields.is_none() && profile.claims_clean_up() {
            group.forget(id);
            deleted.push(id_value(id));
            continue;
        }
        let Some(pending) = group.pending.get(&id) else { continue };
        if min_idle > 0 && now - pending.delivered_at < min_idle {
            continue;
        }
        let deliveries = pending.deliveries + i64::from(!just_id);
        group.saw(consumer, now);
        group.give(id, consumer, now, deliveries);
        group.served(consumer, now);
        claimed.push(claimed_value(id, fields, just_id));
    }
    let cursor = ids.get(scanned).copied().unwrap_or(EntryId::ZERO);
    let mut reply = vec![id_value(cursor), Value::Array(claimed)];
    if profile >= Profile::Redis70 {
        reply.push(Value::Array(deleted));
    }
    Ok(Value::Array(reply))
}

fn claimed_value(id: EntryId, fields: Option<&Vec<Bytes>>, just_id: bool) -> Value {
    match fields {
        _ if just_id => id_value(id),
        Some(fields) => entry_value(id, Some(fields)),
        None => Value::Nil,
    }
}
