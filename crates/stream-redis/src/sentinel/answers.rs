//! What sentinels answer, and which server to try first for it. Pure.

use crate::{Error, ErrorKind, Value};

/// What one sentinel says about the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is there.
    Master {
        /// As the sentinel announces it.
        host: String,
        /// Likewise.
        port: u16,
        /// How many failovers the sentinel has seen; 0 where it does not tell.
        epoch: u64,
    },
    /// The sentinel watches no master of this name.
    Unknown,
}

/// Reads the replies to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`. Only the first is needed: a user of a
/// sentinel may not be allowed the second.
pub(super) fn read(replies: &[Value]) -> Result<Answer, Error> {
    let unexpected = || Error::new(ErrorKind::Protocol, "a sentinel answered with something else than an address");
    match replies.first() {
        Some(Value::Nil) => Ok(Answer::Unknown),
        Some(Value::Error(error)) => Err(Error::from_server(error.clone()).at("SENTINEL", None)),
        Some(Value::Array(parts)) => {
            let [host, port] = parts.as_slice() else { return Err(unexpected()) };
            let host = host.as_bytes().and_then(|host| std::str::from_utf8(host).ok()).ok_or_else(unexpected)?;
            let port = port.as_int().and_then(|port| u16::try_from(port).ok()).ok_or_else(unexpected)?;
            Ok(Answer::Master { host: host.to_owned(), port, epoch: replies.get(1).map_or(0, epoch) })
        }
        _ => Err(unexpected()),
    }
}

fn epoch(master: &Value) -> u64 {
    let number = |value: &Value| value.as_int().and_then(|epoch| u64::try_from(epoch).ok());
    let wanted = |name: &Value| name.as_bytes() == Some(b"config-epoch");
    match master {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| wanted(name)).and_then(|(_, value)| number(value)),
        Value::Array(items) => items.chunks_exact(2).find(|pair| wanted(&pair[0])).and_then(|pair| number(&pair[1])),
        _ => None,
    }
    .unwrap_or(0)
}

/// The servers to try in turn. Of two sentinels that disagree the one that has seen more failovers goes first.
///
/// # Errors
/// None is named: final if all sentinels answered that they do not know the name, else passing.
pub(super) fn candidates(master: &str, answers: Vec<Result<Answer, Error>>) -> Result<Vec<(String, u16)>, Error> {
    let mut named: Vec<(u64, String, u16)> = Vec::new();
    let mut failed: Option<Error> = None;
    let mut unknown = 0;
    for answer in answers {
        match answer {
            Ok(Answer::Master { host, port, epoch }) => named.push((epoch, host, port)),
            Ok(Answer::Unknown) => unknown += 1,
            // One that may pass says more than one that is final: that sentinel is alone with it.
            Err(error) => failed = Some(failed.filter(Error::is_passing).unwrap_or(error)),
        }
    }
    if named.is_empty() {
        return Err(match failed {
            None => Error::new(
                ErrorKind::Config,
                format!("all {unknown} sentinels answer that they know no master `{master}`: is that its name there?"),
            ),
            Some(error) if unknown == 0 => error,
            Some(error) => {
                let message = format!("no sentinel that answers ({unknown}) knows the master `{master}`");
                Error::new(ErrorKind::Moved, message).with_source(error)
            }
        });
    }
    named.sort_by_key(|(epoch, ..)| std::cmp::Reverse(*epoch));
    let mut addresses: Vec<(String, u16)> = Vec::new();
    for (_, host, port) in named {
        if !addresses.iter().any(|known| known.0 == host && known.1 == port) {
            addresses.push((host, port));
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, epoch: u64) -> Result<Answer, Error> {
        Ok(Answer::Master { host: host.to_owned(), port: 1, epoch })
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let address = Value::Array(vec![Value::bulk("10.0.0.1"), Value::bulk("6379")]);
        let expected = |epoch| Answer::Master { host: "10.0.0.1".to_owned(), port: 6379, epoch };
        let flat = Value::Array(["name", "m", "config-epoch", "7"].map(Value::bulk).into());
        assert_eq!(read(&[address.clone(), flat]).unwrap(), expected(7));
        let map = Value::Map(vec![(Value::bulk("config-epoch"), Value::bulk("8"))]);
        assert_eq!(read(&[address.clone(), map]).unwrap(), expected(8));
        let refused = Value::Error(crate::ServerError::parse("NOPERM no"));
        assert_eq!(read(&[address, refused.clone()]).unwrap(), expected(0));
        assert_eq!(read(&[Value::Nil, refused.clone()]).unwrap(), Answer::Unknown);
        assert_eq!(read(&[refused]).unwrap_err().kind(), ErrorKind::NoPermission);
        for odd in [Value::Int(1), Value::Array(vec![]), Value::Array(vec![Value::bulk("h"), Value::bulk("70000")])] {
            assert_eq!(read(&[odd]).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    #[test]
    fn the_sentinel_that_saw_the_last_failover_is_believed_first() {
        let named = candidates("m", vec![at("old", 3), at("new", 4), at("old", 3), Ok(Answer::Unknown)]).unwrap();
        assert_eq!(named, [("new".to_owned(), 1), ("old".to_owned(), 1)]);
    }

    #[test]
    fn an_unknown_name_is_final_only_if_all_say_so() {
        let down = || Err(Error::new(ErrorKind::Io, "refused"));
        let kind = |answers| candidates("m", answers).unwrap_err().kind();
        assert_eq!(kind(vec![Ok(Answer::Unknown), Ok(Answer::Unknown)]), ErrorKind::Config);
        assert_eq!(kind(vec![Ok(Answer::Unknown), down()]), ErrorKind::Moved);
        assert_eq!(kind(vec![down(), down()]), ErrorKind::Io);
    }
}
