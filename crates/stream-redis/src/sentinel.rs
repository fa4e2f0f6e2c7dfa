//! [`Sentinel`]: the master that sentinels agree on, found anew for every connection.
//!
//! What must stay true: a connection leads to a server that says itself that it is a master, whoever connects after a
//! failover comes to the new one, and whoever is still connected to the old one by then is cut off from it. Who is asked for
//! what is decided by the module `answers`, without any I/O.

mod answers;
#[cfg(fuzzing)]
pub mod fuzzing;
mod options;
mod switches;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use stream_core::StreamKey;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::switches::Switches;
use crate::command_connection::CommandConnection;
use crate::options::ConnectOptions;
use crate::reader::SocketReader;
use crate::transport::Stream;
use crate::{Appender, Connection, Connector, Error, ErrorKind, Reader, Request, Value, greeting, transport};

pub use options::SentinelOptions;

/// How long the others may take once one sentinel has named a master: it may be one that has missed the last failover.
const GRACE: Duration = Duration::from_millis(100);

/// Between two rounds of questions while there is no master. A failover takes seconds; the questions cost little.
const PAUSE: Duration = Duration::from_millis(250);

/// Opens connections to the master of the moment.
#[derive(Debug)]
pub(crate) struct Sentinel {
    options: SentinelOptions,
    switches: Switches,
    /// The answer of the greatest epoch.
    newest: Mutex<Option<answers::Answer>>,
}

impl Sentinel {
    pub(crate) fn new(options: SentinelOptions) -> Self {
        Self { options, switches: Switches::new(), newest: Mutex::default() }
    }

    /// A stream to the master, greeted, and the options it was greeted with. A failover that is under way is waited for,
    /// as long as a connection may take.
    async fn open(&self, name: Option<&str>) -> Result<(Stream, ConnectOptions), Error> {
        let limit = self.options.server().connect_timeout();
        let deadline = Instant::now() + limit;
        let mut last = None;
        loop {
            let error = match timeout_at(deadline, self.attempt(name, deadline)).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => error,
                Err(_) => {
                    let message = format!("finding the master `{}` took longer than {limit:?}", self.options.master());
                    let error = Error::new(ErrorKind::Timeout, message);
                    return Err(match last {
                        Some(last) => error.with_source(last),
                        None => error,
                    });
                }
            };
            let pause = PAUSE.mul_f64(0.5 + fastrand::f64());
            if !error.is_passing() {
                return Err(error);
            }
            // With little time left everything is late, and what had more time has said more.
            let late = error.kind() == ErrorKind::Timeout;
            let error = last.take().filter(|_| late).unwrap_or(error);
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            last = Some(error);
            sleep(pause).await;
        }
    }

    /// Adds the newest answer that there ever was to those of this time: who has missed a failover may be the only one that can
    /// be reached now.
    fn remember(&self, answers: &mut Vec<Result<answers::Answer, Error>>) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if !answers.iter().any(|answer| matches!(answer, Ok(answers::Answer::Master { .. }))) {
            return;
        }
        answers.extend(newest.clone().map(Ok));
        let epoch = |answer: &&answers::Answer| match answer {
            answers::Answer::Master { epoch, .. } => *epoch,
            answers::Answer::Unknown => 0,
        };
        // Of the same epoch, what is said now.
        *newest = answers.iter().rev().filter_map(|answer| answer.as_ref().ok()).max_by_key(epoch).cloned();
    }

    async fn attempt(&self, name: Option<&str>, deadline: Instant) -> Result<(Stream, ConnectOptions), Error> {
        let followed = self.switches.follow(&self.options);
        let mut answers = ask_all(&self.options, deadline).await;
        self.remember(&mut answers);
        let mut candidates = answers::candidates(self.options.master(), answers)?;
        if let Some(news) = followed.news() {
            candidates.retain(|known| *known != news);
            candidates.insert(0, news);
        }
        let mut last = None;
        for (host, port) in candidates {
            let options = self.options.server().at(&host, port).within(share(deadline));
            let options = name.map_or_else(|| options.clone(), |name| options.named(name));
            match open_master(&options).await {
                Ok(stream) => return Ok((stream.until(followed.until_other_than(host, port)), options)),
                // One that refuses for good may be somebody else's by now, at an address that was used again.
                Err(error) => last = Some(last.filter(Error::is_passing).unwrap_or(error)),
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Moved, "the sentinels name no master")))
    }
}

#[async_trait]
impl Connector for Sentinel {
    async fn connect(&self, _: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        let (stream, options) = self.open(None).await?;
        Ok(Arc::new(CommandConnection::new(stream, &options).await?))
    }

    async fn open_appender(&self, _: &StreamKey) -> Result<Appender, Error> {
        let (stream, options) = self.open(None).await?;
        Ok(Appender::on(stream, &options))
    }

    async fn open_reader(&self, _: &StreamKey, name: &str) -> Result<Box<dyn Reader>, Error> {
        let (stream, options) = self.open(Some(name)).await?;
        Ok(Box::new(SocketReader::new(stream, options.response_timeout())))
    }
}

/// So much of the time that is left goes to one step: one that hangs must still be able to say so itself, since that tells
/// more than that it was late.
fn share(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).mul_f64(0.75)
}

/// What the sentinels say; those that take long are not waited for once another has named a master.
async fn ask_all(options: &SentinelOptions, deadline: Instant) -> Vec<Result<answers::Answer, Error>> {
    let limit = share(deadline);
    let ask = |sentinel: &ConnectOptions| ask(sentinel.within(limit), options.master());
    let mut asked: FuturesUnordered<_> = options.sentinels().iter().map(ask).collect();
    let mut answers = Vec::new();
    loop {
        let named = answers.iter().any(|answer| matches!(answer, Ok(answers::Answer::Master { .. })));
        let next = if named { timeout(GRACE, asked.next()).await.unwrap_or(None) } else { asked.next().await };
        match next {
            Some(answer) => answers.push(answer),
            None => return answers,
        }
    }
}

async fn ask(sentinel: ConnectOptions, master: &str) -> Result<answers::Answer, Error> {
    let limit = sentinel.connect_timeout();
    let asked = async {
        let mut stream = transport::open(&sentinel).await?;
        let requests =
            [Request::new("SENTINEL GET-MASTER-ADDR-BY-NAME").arg(master), Request::new("SENTINEL MASTER").arg(master)];
        answers::read(&greeting::ask(&mut stream, &sentinel, &requests).await?)
    };
    let late = |_| Err(Error::new(ErrorKind::Timeout, format!("the sentinel {sentinel} did not answer in {limit:?}")));
    timeout(limit, asked).await.unwrap_or_else(late)
}

/// Connects and lets the server confirm that it is a master. A sentinel may not know yet that it was demoted.
async fn open_master(options: &ConnectOptions) -> Result<Stream, Error> {
    let mut stream = transport::open(options).await?;
    let limit = options.response_timeout();
    let role = timeout(limit, greeting::ask(&mut stream, options, &[Request::new("ROLE")])).await;
    let role = role.map_err(|_| Error::new(ErrorKind::Timeout, format!("{options} did not tell its role")))??;
    let said = match role.first() {
        Some(Value::Array(parts)) => parts.first().and_then(Value::as_bytes),
        Some(Value::Error(error)) => {
            let error = Error::from_server(error.clone()).at("ROLE", None);
            if !matches!(error.kind(), ErrorKind::NoPermission | ErrorKind::Unsupported) {
                return Err(error);
            }
            tracing::debug!(%options, %error, "the role of the server is not known: its sentinels are believed");
            return Ok(stream);
        }
        _ => None,
    };
    if said == Some(b"master") {
        return Ok(stream);
    }
    let role = String::from_utf8_lossy(said.unwrap_or(b"something else")).into_owned();
    Err(Error::new(ErrorKind::Moved, format!("{options} is no master but {role}, whatever its sentinels say")))
}
