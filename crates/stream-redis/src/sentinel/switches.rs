//! [`Switches`]: hears from a sentinel that another server is the master now, and ends the connections to the one before.
//!
//! After a failover by order the old master lives, and its sentinels make it a replica only some eight seconds later. Until then
//! it serves whoever is still connected, and all that it is told is lost. What must stay true: a connection that is ended so
//! fails as one that the network has cut; and where no sentinel can be listened to, everything else goes on as without it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stream_core::BackoffPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{SentinelOptions, answers, ask_all};
use crate::greeting::reply::{self, NotResp};
use crate::options::ConnectOptions;
use crate::transport;
use crate::{Error, ErrorKind, Request, Value};

/// The channel on which sentinels say it.
const CHANNEL: &str = "+switch-master";
/// After such a silence the sentinel is asked whether it is there; after another one it is not.
const SILENCE: Duration = Duration::from_secs(10);
/// For so long a master that was heard of goes before the one that sentinels name when they are asked: some of them learn of it
/// later than others.
const NEWS: Duration = Duration::from_secs(30);
/// What a sentinel says at a time takes some hundred bytes.
const LARGEST: usize = 64 * 1024;

/// Host and port of a master, as sentinels announce it.
type Address = (String, u16);

/// A master, and when a sentinel has told of its own accord that it became that. One that was asked for is no news: whoever asks
/// later hears no less.
#[derive(Debug, Clone)]
struct Heard {
    master: Address,
    switched: Option<Instant>,
}

impl Heard {
    fn is_news(&self) -> bool {
        self.switched.is_some_and(|at| at.elapsed() < NEWS)
    }
}

/// Listens as long as it lives and somebody has opened a connection.
#[derive(Debug)]
pub(super) struct Switches {
    heard: Arc<watch::Sender<Option<Heard>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Switches {
    pub(super) fn new() -> Self {
        Self { heard: Arc::new(watch::Sender::new(None)), listener: Mutex::new(None) }
    }

    /// What is heard from now on. To be taken before the sentinels are asked for the master, so that no switch is missed.
    pub(super) fn follow(&self, options: &SentinelOptions) -> Followed {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        // It is over when the runtime that it was begun on is.
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(listen(options.clone(), Arc::clone(&self.heard))));
        }
        Followed(self.heard.subscribe())
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner) {
            listener.abort();
        }
    }
}

/// Hears of other masters.
#[derive(Debug)]
pub(super) struct Followed(watch::Receiver<Option<Heard>>);

impl Followed {
    /// The master that was switched to last, if that is news.
    pub(super) fn news(&self) -> Option<Address> {
        let heard = self.0.borrow();
        heard.as_ref().filter(|heard| heard.is_news()).map(|heard| heard.master.clone())
    }

    /// Ends when another master than this one is heard of; never, when nobody listens any more.
    pub(super) async fn until_other_than(mut self, host: String, port: u16) {
        let is_other = |heard: &Option<Heard>| {
            heard.as_ref().is_some_and(|Heard { master, .. }| (&master.0, master.1) != (&host, port))
        };
        loop {
            if self.0.changed().await.is_err() {
                return std::future::pending().await;
            }
            if is_other(&self.0.borrow_and_update()) {
                return;
            }
        }
    }
}

/// Listens to one sentinel after the other, each as long as it answers.
async fn listen(options: SentinelOptions, heard: Arc<watch::Sender<Option<Heard>>>) {
    let backoff = BackoffPolicy::default();
    let first = fastrand::usize(..options.sentinels().len());
    let mut failures = 0;
    for sentinel in options.sentinels().iter().cycle().skip(first) {
        let began = Instant::now();
        if let Err(error) = listen_to(sentinel, &options, &heard).await {
            tracing::debug!(%sentinel, %error, "no switch of masters is heard of meanwhile");
        }
        failures = if began.elapsed() > SILENCE { 0 } else { failures + 1 };
        sleep(backoff.delay(failures, fastrand::f64())).await;
    }
}

/// Listens to one sentinel until it is gone or refuses.
async fn listen_to(
    sentinel: &ConnectOptions,
    options: &SentinelOptions,
    heard: &watch::Sender<Option<Heard>>,
) -> Result<(), Error> {
    let lost = |cause| Error::new(ErrorKind::Io, format!("{sentinel} is gone")).with_source(cause);
    let mut stream = transport::open(sentinel).await?;
    let mut buffer = Vec::new();
    Request::new("SUBSCRIBE").arg(CHANNEL).encode(&mut buffer);
    stream.write_all(&buffer).await.map_err(lost)?;
    buffer.clear();
    let mut asked = false;
    loop {
        match timeout(SILENCE, stream.read_buf(&mut buffer)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => asked = false,
            Ok(Err(cause)) => return Err(lost(cause)),
            Err(_) if asked => return Err(Error::new(ErrorKind::Timeout, format!("{sentinel} says nothing any more"))),
            Err(_) => {
                let mut ping = Vec::new();
                Request::new("PING").encode(&mut ping);
                stream.write_all(&ping).await.map_err(lost)?;
                asked = true;
            }
        }
        while let Some((said, used)) = reply::parse(&buffer).map_err(|NotResp(byte)| {
            Error::new(ErrorKind::Protocol, format!("{sentinel} is no sentinel: it says byte {byte:#04x}"))
        })? {
            buffer.drain(..used);
            match read(&said, options.master())? {
                // Somebody else has listened to before, or nobody: what was missed meanwhile is found out.
                Said::Listening => {
                    let limit = sentinel.connect_timeout();
                    let answers = timeout(limit, ask_all(options, Instant::now() + limit)).await.unwrap_or_default();
                    let master = answers::candidates(options.master(), answers)?.into_iter().next();
                    // Whoever answers here may have missed what was just heard.
                    if let Some(master) = master.filter(|_| !heard.borrow().as_ref().is_some_and(Heard::is_news)) {
                        tell(heard, master, None);
                    }
                }
                Said::Switched(master) => {
                    tracing::info!(host = master.0, port = master.1, "the sentinels have another master");
                    tell(heard, master, Some(Instant::now()));
                }
                Said::Other => {}
            }
        }
        if buffer.len() > LARGEST {
            return Err(Error::new(
                ErrorKind::Protocol,
                format!("{sentinel} says more than {LARGEST} bytes at a time"),
            ));
        }
    }
}

fn tell(heard: &watch::Sender<Option<Heard>>, master: Address, switched: Option<Instant>) {
    heard.send_replace(Some(Heard { master, switched }));
}

/// The master that it tells of.
#[cfg(fuzzing)]
pub(super) fn switched(said: &Value, master: &str) -> Result<Option<Address>, Error> {
    Ok(match read(said, master)? {
        Said::Switched(master) => Some(master),
        Said::Listening | Said::Other => None,
    })
}

/// What a sentinel says to somebody who listens.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// From now on.
    Listening,
    /// This is the master now.
    Switched(Address),
    /// Something about another master, or an answer.
    Other,
}

/// Reads it. The message is the name, the old address and the new one, with spaces between.
fn read(said: &Value, master: &str) -> Result<Said, Error> {
    let parts = match said {
        Value::Array(parts) => parts.as_slice(),
        Value::Error(error) => return Err(Error::from_server(error.clone()).at("SUBSCRIBE", None)),
        _ => return Ok(Said::Other),
    };
    let text = |at: usize| parts.get(at).and_then(Value::as_bytes).and_then(|text| std::str::from_utf8(text).ok());
    Ok(match (text(0), text(2)) {
        (Some("subscribe"), _) => Said::Listening,
        (Some("message"), Some(message)) => match message.split(' ').collect::<Vec<_>>()[..] {
            [name, _, _, host, port] if name == master => {
                port.parse().map_or(Said::Other, |port| Said::Switched((host.to_owned(), port)))
            }
            _ => Said::Other,
        },
        _ => Said::Other,
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn array(parts: &[&str]) -> Value {
        Value::Array(parts.iter().copied().map(Value::bulk).collect())
    }

    fn message(text: &str) -> Value {
        array(&["message", CHANNEL, text])
    }

    #[test]
    fn only_a_switch_of_this_master_is_one() {
        let switched = |port| Said::Switched(("10.0.0.2".to_owned(), port));
        let said = |value| read(&value, "main").unwrap();
        assert_eq!(said(message("main 10.0.0.1 6379 10.0.0.2 6380")), switched(6380));
        assert_eq!(said(array(&["subscribe", CHANNEL, "1"])), Said::Listening);
        for other in ["mains 10.0.0.1 6379 10.0.0.2 6380", "main 10.0.0.1 6379 10.0.0.2 x", "main", ""] {
            assert_eq!(said(message(other)), Said::Other, "{other}");
        }
        assert_eq!(said(array(&["pong", ""])), Said::Other);
        assert_eq!(said(Value::bulk("PONG")), Said::Other);
        let refused = Value::Error(crate::ServerError::parse("NOPERM no"));
        assert_eq!(read(&refused, "main").unwrap_err().kind(), ErrorKind::NoPermission);
    }

    #[test]
    fn what_ends_a_connection_is_another_master_that_is_heard_of_after_it_was_begun() {
        let address = |host: &str, port| (host.to_owned(), port);
        let heard = watch::Sender::new(None);
        tell(&heard, address("old", 1), None);
        let mut followed = Box::pin(Followed(heard.subscribe()).until_other_than("new".to_owned(), 1));
        assert!(followed.as_mut().now_or_never().is_none(), "what was said before");
        tell(&heard, address("new", 1), None);
        assert!(followed.as_mut().now_or_never().is_none(), "the same");
        tell(&heard, address("new", 2), None);
        assert!(followed.as_mut().now_or_never().is_some());
        let followed = Followed(heard.subscribe()).until_other_than("new".to_owned(), 2);
        drop(heard);
        assert!(followed.now_or_never().is_none(), "nobody listens any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_master_that_was_switched_to_goes_first_for_a_while() {
        let (heard, master) = (watch::Sender::new(None), ("new".to_owned(), 1));
        let followed = Followed(heard.subscribe());
        assert_eq!(followed.news(), None);
        tell(&heard, master.clone(), None);
        assert_eq!(followed.news(), None, "it was asked for, as everybody can");
        tell(&heard, master.clone(), Some(Instant::now()));
        assert_eq!(followed.news(), Some(master));
        sleep(NEWS).await;
        assert_eq!(followed.news(), None);
    }
}
