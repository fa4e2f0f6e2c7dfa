//! [`Values`]: the variables as values, and the builders that check and use them.

use std::time::Duration;

use stream_consumer::{Consumer, DurableBuilder, EphemeralBuilder};
use stream_core::{BackoffPolicy, NamePattern, RetryPolicy, StartFrom, TrimPolicy};
use stream_maint::{Trimmer, TrimmerBuilder};
use stream_redis::{
    Client, ClusterOptions, ConnectOptions, ConnectOptionsBuilder, Error, Keepalive, PrefectPublisher,
    PrefectPublisherBuilder, Protocol, Publisher, PublisherBuilder, SentinelOptions,
};

use super::parse::Parsed;
use super::table::{Part, VARIABLES};
use crate::chain::chain;

/// Every value, with its default where none was given.
#[derive(Clone, PartialEq)]
pub(super) struct Values {
    pub(super) url: Option<String>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    pub(super) keepalive: Duration,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) response_timeout: Option<Duration>,
    pub(super) protocol: Option<Protocol>,
    pub(super) reconnect_base: Duration,
    pub(super) reconnect_max: Duration,
    pub(super) batch: usize,
    pub(super) publish_every: Duration,
    pub(super) deduplicate_by: Option<String>,
    pub(super) buffer: usize,
    pub(super) block: Duration,
    pub(super) lease: Duration,
    pub(super) claim_every: Option<Duration>,
    pub(super) retries: u32,
    pub(super) retry_delay: Duration,
    pub(super) retry_delay_max: Duration,
    pub(super) take_over: bool,
    pub(super) start: StartFrom,
    pub(super) acknowledge: bool,
    pub(super) concurrency: usize,
    pub(super) prefetch: usize,
    pub(super) prefetch_bytes: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) trim_every: Duration,
    pub(super) trim_exclude: Option<NamePattern>,
    pub(super) trim_idle: Duration,
    pub(super) trim_protect: Option<Vec<String>>,
    pub(super) trim_older_than: Option<Duration>,
    pub(super) trim_longer_than: Option<u64>,
    pub(super) dead_letter: Option<String>,
    pub(super) dead_letter_max: Option<u64>,
}

pub(super) fn protocol(text: &str) -> Parsed<Protocol> {
    match text {
        "2" => Ok(Protocol::Resp2),
        "3" => Ok(Protocol::Resp3),
        _ => Err(format!("`{text}` is no protocol: write 2 or 3")),
    }
}

impl Values {
    /// The defaults of the table.
    pub(super) fn defaults(prefect: bool) -> Self {
        let mut values = Self {
            url: None,
            host: String::new(),
            port: 0,
            database: 0,
            username: None,
            password: None,
            tls: false,
            keepalive: Duration::ZERO,
            connect_timeout: None,
            response_timeout: None,
            protocol: None,
            reconnect_base: Duration::ZERO,
            reconnect_max: Duration::ZERO,
            batch: 0,
            publish_every: Duration::ZERO,
            deduplicate_by: None,
            buffer: 0,
            block: Duration::ZERO,
            lease: Duration::ZERO,
            claim_every: None,
            retries: 0,
            retry_delay: Duration::ZERO,
            retry_delay_max: Duration::ZERO,
            take_over: false,
            start: StartFrom::Beginning,
            acknowledge: false,
            concurrency: 0,
            prefetch: 0,
            prefetch_bytes: 0,
            timeout: None,
            grace: Duration::ZERO,
            trim_every: Duration::ZERO,
            trim_exclude: None,
            trim_idle: Duration::ZERO,
            trim_protect: None,
            trim_older_than: None,
            trim_longer_than: None,
            dead_letter: None,
            dead_letter_max: None,
        };
        for variable in VARIABLES {
            if let Err(problem) = (variable.set)(&mut values, variable.default_for(prefect)) {
                // The table's own texts; a test reads all of them.
                unreachable!("the default of {} is refused: {problem}", variable.name);
            }
        }
        values
    }

    /// Whether the builders take the values of a part.
    pub(super) fn check(&self, part: Part) -> Result<(), String> {
        let nowhere = || ConnectOptions::tcp("localhost", 6379).build().map(Client::from_options);
        match part {
            Part::Connection => {
                self.backoff()?;
                self.servers().map(drop).map_err(|error| chain(&error))
            }
            Part::Publisher => {
                let client = nowhere().map_err(|error| chain(&error))?;
                self.publisher(&client).stream("stream").check().map_err(|error| chain(&error))
            }
            Part::Consumer => {
                let client = nowhere().map_err(|error| chain(&error))?;
                let durable = self.consumer(&client, b"group").stream("stream").build().map(drop);
                let ephemeral = self.ephemeral(&client).stream("stream").build().map(drop);
                durable.and(ephemeral).map_err(|error| chain(&error))
            }
            Part::DeadLetters => {
                let client = nowhere().map_err(|error| chain(&error))?;
                // A stream that no name of dead letters is taken for.
                let builder = Consumer::durable(&client).stream(b"\0").group(b"group");
                self.with_dead_letters(builder).build().map(drop).map_err(|error| chain(&error))
            }
            Part::Trimming => {
                let client = nowhere().map_err(|error| chain(&error))?;
                self.trimmer(&client, b"stream").build().map(drop).map_err(|error| chain(&error))
            }
        }
    }

    pub(super) fn backoff(&self) -> Result<BackoffPolicy, String> {
        BackoffPolicy::new(self.reconnect_base, self.reconnect_max).map_err(|error| error.to_string())
    }

    /// The servers and how to greet them.
    pub(super) fn servers(&self) -> Result<Servers, Error> {
        let Some(url) = &self.url else { return Ok(Servers::One(self.tuned(self.discrete()?)?)) };
        let kind = url.split("://").next().unwrap_or_default();
        if kind.ends_with("+sentinel") {
            let options = SentinelOptions::from_url(url)?;
            let server = self.tuned(options.server().to_builder())?;
            return SentinelOptions::new(options.master(), options.sentinels().to_vec(), server).map(Servers::Watched);
        }
        if kind.ends_with("+cluster") {
            let options = ClusterOptions::from_url(url)?;
            let server = self.tuned(options.server().to_builder())?;
            return ClusterOptions::new(options.nodes().to_vec(), server).map(Servers::Cluster);
        }
        Ok(Servers::One(self.tuned(ConnectOptions::from_url(url)?.to_builder())?))
    }

    /// With the variables that go with every kind of URL.
    fn tuned(&self, mut builder: ConnectOptionsBuilder) -> Result<ConnectOptions, Error> {
        // What the URL says itself goes before.
        let query = self.url.as_deref().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
        let said = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        if let Some(protocol) = self.protocol.filter(|_| !said("protocol")) {
            builder = builder.protocol(protocol);
        }
        if let Some(limit) = self.connect_timeout.filter(|_| !said("connect_timeout")) {
            builder = builder.connect_timeout(limit);
        }
        if let Some(limit) = self.response_timeout.filter(|_| !said("response_timeout")) {
            builder = builder.response_timeout(limit);
        }
        if !said("keepalive") {
            builder = builder.keepalive((!self.keepalive.is_zero()).then(|| Keepalive::after(self.keepalive)));
        }
        builder.build()
    }

    /// From host, port and so on.
    fn discrete(&self) -> Result<ConnectOptionsBuilder, Error> {
        let mut builder = ConnectOptions::tcp(&self.host, self.port).database(self.database);
        // The server's default user needs no name, and without a password no greeting.
        let user = self.username.as_ref().filter(|user| self.password.is_some() || *user != "default");
        if let Some(user) = user {
            builder = builder.user(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if self.tls { encrypted(builder) } else { Ok(builder) }
    }

    pub(super) fn publisher(&self, client: &Client) -> PublisherBuilder {
        Publisher::builder(client)
            .batch(self.batch)
            .linger(self.publish_every)
            .buffer(self.buffer)
            // Checked with the connection.
            .backoff(self.backoff().unwrap_or_default())
    }

    pub(super) fn prefect_publisher(&self, client: &Client, topic: &str) -> PrefectPublisherBuilder {
        let mut builder = PrefectPublisher::builder(client)
            .topic(topic)
            .batch_size(self.batch)
            .publish_every(self.publish_every)
            .buffer(self.buffer)
            .backoff(self.backoff().unwrap_or_default());
        if let Some(attribute) = &self.deduplicate_by {
            builder = builder.deduplicate_by(attribute);
        }
        if self.url.as_deref().is_some_and(|url| url.split("://").next().is_some_and(|kind| kind.ends_with("+cluster")))
        {
            builder = builder.cluster();
        }
        builder
    }

    pub(super) fn durable(&self, client: &Client, group: &[u8]) -> DurableBuilder {
        self.with_dead_letters(self.consumer(client, group))
    }

    fn consumer(&self, client: &Client, group: &[u8]) -> DurableBuilder {
        let retry = if self.retry_delay.is_zero() {
            RetryPolicy::immediate()
        } else {
            RetryPolicy::exponential(self.retry_delay..=self.retry_delay_max)
        };
        let mut builder = Consumer::durable(client)
            .group(group)
            .start(self.start)
            .block(self.block)
            .lease(self.lease)
            .take_over(self.take_over)
            .retry(retry.max_attempts(self.retries.saturating_add(1)))
            .concurrency(self.concurrency)
            .prefetch(self.prefetch)
            .prefetch_bytes(self.prefetch_bytes)
            .grace(self.grace)
            .backoff(self.reconnect_base, self.reconnect_max);
        if let Some(every) = self.claim_every {
            builder = builder.claim_every(every);
        }
        if let Some(limit) = self.timeout {
            builder = builder.timeout(limit);
        }
        builder
    }

    fn with_dead_letters(&self, mut builder: DurableBuilder) -> DurableBuilder {
        if let Some(key) = &self.dead_letter {
            builder = builder.dead_letter(key);
        }
        if let Some(most) = self.dead_letter_max {
            builder = builder.dead_letter_max(most);
        }
        builder
    }

    pub(super) fn ephemeral(&self, client: &Client) -> EphemeralBuilder {
        let builder = Consumer::ephemeral(client)
            .block(self.block)
            .prefetch(self.prefetch)
            .prefetch_bytes(self.prefetch_bytes)
            .grace(self.grace)
            .backoff(self.reconnect_base, self.reconnect_max);
        match self.timeout {
            Some(limit) => builder.timeout(limit),
            None => builder,
        }
    }

    pub(super) fn trimmer(&self, client: &Client, stream: &[u8]) -> TrimmerBuilder {
        let mut policy = TrimPolicy::new();
        if let Some(age) = self.trim_older_than {
            policy = policy.older_than(age);
        }
        if let Some(entries) = self.trim_longer_than {
            policy = policy.longer_than(entries);
        }
        if let Some(pattern) = &self.trim_exclude {
            policy = policy.exclude_stale(pattern.clone(), self.trim_idle);
        }
        let builder = Trimmer::builder(client).stream(stream).policy(policy).trim_every(self.trim_every);
        self.trim_protect.iter().flatten().fold(builder, TrimmerBuilder::protect)
    }
}

/// The servers that settings name.
#[derive(Debug, Clone)]
pub(super) enum Servers {
    One(ConnectOptions),
    Watched(SentinelOptions),
    Cluster(ClusterOptions),
}

impl Servers {
    pub(super) fn connect_options(&self) -> &ConnectOptions {
        match self {
            Self::One(options) => options,
            Self::Watched(options) => options.server(),
            Self::Cluster(options) => options.server(),
        }
    }

    pub(super) fn client(&self) -> Client {
        match self {
            Self::One(options) => Client::from_options(options.clone()),
            Self::Watched(options) => Client::from_sentinel(options.clone()),
            Self::Cluster(options) => Client::from_cluster(options.clone()),
        }
    }
}

#[cfg(feature = "rustls")]
fn encrypted(builder: ConnectOptionsBuilder) -> Result<ConnectOptionsBuilder, Error> {
    Ok(builder.tls(stream_redis::TlsOptions::default()))
}

#[cfg(not(feature = "rustls"))]
fn encrypted(_: ConnectOptionsBuilder) -> Result<ConnectOptionsBuilder, Error> {
    let text = "this build has no TLS: enable the feature `rustls`, or write false";
    Err(Error::new(stream_redis::ErrorKind::Config, text))
}
