//! [`SentinelOptions`]: which sentinels to ask for which master, validated when they are made.

use crate::options::{self, ConnectOptions};
use crate::{Error, ErrorKind};

/// The port of a sentinel when none is given.
const DEFAULT_PORT: u16 = 26379;
const PARAMETERS: [&str; 2] = ["sentinel_user", "sentinel_pass"];

/// Sentinels, the name of the master they watch, and how to greet the master.
///
/// From a URL: `redis+sentinel://[user[:password]@]host[:port][,host[:port]…]/master[/database]`, where the hosts are
/// those of the sentinels, and user, password and database are for the master. Parameters are those of
/// [`ConnectOptions`], and `sentinel_user` and `sentinel_pass`, which the sentinels themselves ask for.
/// `rediss+sentinel://` encrypts the connections to both (feature `rustls`); servers are then announced under the names
/// in their certificates, or `tls_server_name` gives the one name that all of them have.
///
/// ```
/// use stream_redis::SentinelOptions;
/// let options = SentinelOptions::from_url("redis+sentinel://:s3cret@s1,s2:26380,s3/mymaster/2")?;
/// assert_eq!(options.master(), "mymaster");
/// assert_eq!(options.sentinels().len(), 3);
/// # Ok::<(), stream_redis::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SentinelOptions {
    sentinels: Vec<ConnectOptions>,
    master: String,
    server: ConnectOptions,
}

impl SentinelOptions {
    /// Options from a URL.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the part that is wrong; never with a password.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        let hosts = options::split(url, "sentinel", DEFAULT_PORT, &PARAMETERS)?;
        let (master, database) = match hosts.path.as_slice() {
            [master] => (master, None),
            [master, database] => (master, Some(database)),
            _ => {
                return Err(config(
                    "the URL does not name the master: expected redis+sentinel://host[:port],host[:port]/master[/database]",
                ));
            }
        };
        let mut server = hosts.options.to_builder();
        if let Some(database) = database {
            if hosts.options.database() != 0 {
                return Err(config("the database is given before and after the `?` of the URL"));
            }
            server = server.database(database.parse().map_err(|_| {
                config("the database in the URL is not a number: expected redis+sentinel://host/master/0")
            })?);
        }
        let [user, password] = <[_; 2]>::try_from(hosts.own).unwrap_or_default();
        let mut sentinels = Vec::with_capacity(hosts.addresses.len());
        for (host, port) in hosts.addresses {
            sentinels.push(hosts.options.at(&host, port).with_credentials(user.clone(), password.clone(), 0));
        }
        Self::new(master, sentinels, server.build()?)
    }

    /// Options one by one. The address in `server` is not used: the sentinels tell it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`]: no sentinel, no name, or a sentinel with a database.
    pub fn new(
        master: impl Into<String>,
        sentinels: impl IntoIterator<Item = ConnectOptions>,
        server: ConnectOptions,
    ) -> Result<Self, Error> {
        let this = Self { sentinels: sentinels.into_iter().collect(), master: master.into(), server };
        if this.sentinels.is_empty() {
            return Err(config("no sentinel is given: give at least one, better all of them"));
        }
        if this.master.is_empty() {
            return Err(config("the name of the master is empty: give the one that `sentinel monitor` was told"));
        }
        if this.sentinels.iter().any(|sentinel| sentinel.database() != 0) {
            return Err(config("a sentinel has no databases: give the database to the server"));
        }
        Ok(this)
    }

    /// The sentinels; all of them are asked.
    pub fn sentinels(&self) -> &[ConnectOptions] {
        &self.sentinels
    }

    /// The name of the master.
    pub fn master(&self) -> &str {
        &self.master
    }

    /// How to greet the master.
    pub fn server(&self) -> &ConnectOptions {
        &self.server
    }
}

fn config(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_everything() {
        let url = "valkey+sentinel://app:hunter2@s1,[::1]:7000/my-master/3?sentinel_user=w&sentinel_pass=hunter3&keepalive=off";
        let options = SentinelOptions::from_url(url).unwrap();
        let sentinels: Vec<_> = options.sentinels().iter().map(ToString::to_string).collect();
        assert_eq!(sentinels, ["redis://w:***@s1:26379/0", "redis://w:***@[::1]:7000/0"]);
        assert_eq!(options.sentinels()[1].password(), Some("hunter3"));
        assert_eq!((options.server().user(), options.server().password()), (Some("app"), Some("hunter2")));
        assert_eq!(options.server().database(), 3);
        assert_eq!(options.server().keepalive(), None);
        assert_eq!(options.master(), "my-master");
        assert!(!format!("{options:?}").contains("hunter"), "{options:?}");
    }

    #[test]
    fn without_its_own_credentials_a_sentinel_is_given_none() {
        let options = SentinelOptions::from_url("redis+sentinel://app:hunter2@s1/m").unwrap();
        assert_eq!(options.sentinels()[0].to_string(), "redis://s1:26379/0");
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        for (url, names) in [
            ("redis+sentinel://s1", "does not name the master"),
            ("redis+sentinel://s1/m/0/x", "does not name the master"),
            ("redis+sentinel://s1/m/x", "not a number"),
            ("redis+sentinel://s1/m/2?db=3", "before and after"),
            ("redis+sentinel:///m", "hosts in the URL is empty"),
            ("redis+sentinel://s1,,s2/m", "hosts in the URL is empty"),
            ("redis+sentinel://s1:0/m", "hosts in the URL is empty"),
            ("redis+sentinel://:hunter2@s1/m?sentinel_pas=hunter2", "unknown parameter `sentinel_pas`"),
            ("redis+sentinel://s1/m?sentinel_user=a&sentinel_user=b", "given twice"),
            ("redisss+sentinel://:hunter2@s1/m", "not of the form"),
            ("redis+sentinel://app:7?hunter2@s1/m", "percent-encode"),
            ("redis+cluster://s1/m", "not of the form"),
        ] {
            let error = SentinelOptions::from_url(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(names), "{url}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error:?}");
        }
    }
}
