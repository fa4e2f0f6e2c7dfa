//! URLs to options. Whatever a URL holds is used or refused; nothing is ignored.

use std::time::Duration;

use url::{Host, Url};

use super::{ConnectOptions, ConnectOptionsBuilder, DEFAULT_PORT, Keepalive, Protocol, TlsOptions, config};
use crate::Error;

const SCHEMES: &str = "redis, rediss, redis+unix, unix, redis+sentinel, rediss+sentinel, redis+cluster, rediss+cluster, \
                       and the same with valkey";
const PARAMETERS: &[&str] =
    &["protocol", "connect_timeout", "response_timeout", "keepalive", "client_name", "db", "user", "pass"];
const TLS_PARAMETERS: &[&str] =
    &["tls_ca_file", "tls_certificate_file", "tls_key_file", "tls_server_name", "danger_accept_invalid_certificates"];

pub(super) fn parse(text: &str) -> Result<ConnectOptionsBuilder, Error> {
    let url = Url::parse(text).map_err(|error| {
        config(
            "the URL cannot be parsed: expected redis://[user[:password]@]host[:port][/database], \
             with reserved characters in user and password percent-encoded (/ as %2F, # as %23, ? as %3F)",
        )
        .with_source(error)
    })?;
    if url.fragment().is_some() {
        return Err(config("the URL has a part after `#`: percent-encode a `#` in a password as %23"));
    }
    match url.scheme() {
        "redis" | "valkey" => Ok(Parameters::of(&url, false)?.apply(tcp(&url)?)?.0),
        "rediss" | "valkeys" => tls(&url),
        "redis+unix" | "valkey+unix" | "unix" => Ok(Parameters::of(&url, false)?.apply(unix(&url)?)?.0),
        "http" | "https" => {
            Err(config(format!("the URL is not one of a Redis server: the scheme is one of {SCHEMES}")))
        }
        scheme if scheme.ends_with("+sentinel") || scheme.ends_with("+cluster") => {
            Err(config(format!("`{scheme}` names more than one server: open it with Client::open")))
        }
        scheme => Err(config(format!("unknown scheme `{scheme}` in the URL: it is one of {SCHEMES}"))),
    }
}

fn tcp(url: &Url) -> Result<ConnectOptionsBuilder, Error> {
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Domain(name)) => decode("host", name)?,
        None => String::new(),
    };
    if host.is_empty() {
        return Err(config("the URL has no host: expected redis://host[:port][/database]"));
    }
    let mut builder = ConnectOptions::tcp(host, url.port().unwrap_or(DEFAULT_PORT));
    if !url.username().is_empty() {
        builder = builder.user(decode("user", url.username())?);
    }
    if let Some(password) = url.password().filter(|password| !password.is_empty()) {
        builder = builder.password(decode("password", password)?);
    }
    match url.path().trim_start_matches('/') {
        "" => Ok(builder),
        path => Ok(builder.database(database(path)?)),
    }
}

fn unix(url: &Url) -> Result<ConnectOptionsBuilder, Error> {
    if url.has_host() && url.host_str().is_some_and(|host| !host.is_empty()) {
        return Err(config("a URL of a unix socket has no host: write redis+unix:///path/to.sock with three slashes"));
    }
    Ok(ConnectOptions::unix(decode("path", url.path())?))
}

#[cfg(feature = "rustls")]
fn tls(url: &Url) -> Result<ConnectOptionsBuilder, Error> {
    let (builder, tls) = Parameters::of(url, true)?.apply(tcp(url)?)?;
    Ok(builder.tls(tls.unwrap_or_default()))
}

#[cfg(not(feature = "rustls"))]
fn tls(_: &Url) -> Result<ConnectOptionsBuilder, Error> {
    Err(config("rediss:// needs TLS, which this build does not have: enable the feature `rustls`"))
}

/// The parameters after `?`, each known and given once.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(url: &Url, tls: bool) -> Result<Self, Error> {
        let mut seen: Vec<(String, String)> = Vec::new();
        for (name, value) in url.query_pairs() {
            let known = PARAMETERS.contains(&&*name) || (tls && TLS_PARAMETERS.contains(&&*name));
            if !known && TLS_PARAMETERS.contains(&&*name) {
                return Err(config(format!("the parameter `{name}` needs a rediss:// URL")));
            }
            if !known {
                let mut list = PARAMETERS.join(", ");
                if tls {
                    list = format!("{list}, {}", TLS_PARAMETERS.join(", "));
                }
                // With an `@` behind the `?` this is most likely the rest of a password, which must not be shown.
                let message = if url.query().is_some_and(|query| query.contains('@')) {
                    "the URL has an `@` after its `?` and a parameter that is not known: percent-encode a `?` in a \
                     password as %3F"
                        .to_owned()
                } else {
                    format!("unknown parameter `{name}` in the URL")
                };
                return Err(config(format!("{message}: known are {list}")));
            }
            if seen.iter().any(|(before, _)| *before == *name) {
                return Err(config(format!("the parameter `{name}` is given twice in the URL")));
            }
            seen.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(seen))
    }

    fn apply(self, mut builder: ConnectOptionsBuilder) -> Result<(ConnectOptionsBuilder, Option<TlsOptions>), Error> {
        #[cfg_attr(not(feature = "rustls"), allow(unused_mut, reason = "set by parameters for TLS only"))]
        let mut tls = None;
        for (name, value) in self.0 {
            let twice = |there: bool| {
                let message = format!("`{name}` is given before and after the `?` of the URL");
                if there { Err(config(message)) } else { Ok(()) }
            };
            builder = match name.as_str() {
                "protocol" => builder.protocol(match value.as_str() {
                    "resp2" | "2" => Protocol::Resp2,
                    "resp3" | "3" => Protocol::Resp3,
                    _ => return Err(config(format!("protocol=`{value}` in the URL: it is resp2 or resp3"))),
                }),
                "connect_timeout" => builder.connect_timeout(duration(&name, &value)?),
                "response_timeout" => builder.response_timeout(duration(&name, &value)?),
                "keepalive" if value == "off" => builder.keepalive(None),
                "keepalive" => builder.keepalive(Keepalive::after(duration(&name, &value)?)),
                "client_name" => builder.client_name(value),
                "db" => {
                    twice(builder.options.database != 0)?;
                    builder.database(database(&value)?)
                }
                "user" => {
                    twice(builder.options.user.is_some())?;
                    builder.user(value)
                }
                "pass" => {
                    twice(builder.options.password.is_some())?;
                    builder.password(value)
                }
                #[cfg(feature = "rustls")]
                tls_name => {
                    tls = Some(tls.unwrap_or_else(TlsOptions::new).set(tls_name, value)?);
                    builder
                }
                #[cfg(not(feature = "rustls"))]
                _ => builder,
            };
        }
        Ok((builder, tls))
    }
}

fn database(text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| config("the database in the URL is not a number: expected redis://host:port/0"))
}

/// `15s`, `500ms` or `2m`; a bare number is refused, since its unit would be a guess.
fn duration(name: &str, text: &str) -> Result<Duration, Error> {
    let wrong = || config(format!("{name}=`{text}` in the URL is not a time: write 500ms, 5s or 2m"));
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        _ => None,
    };
    millis.map(Duration::from_millis).ok_or_else(wrong)
}

/// Undoes percent-encoding.
fn decode(part: &str, text: &str) -> Result<String, Error> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        match after {
            [high, low, after @ ..] if hex(high).is_some() && hex(low).is_some() => {
                out.push((hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0)) as u8);
                rest = after;
            }
            _ => return Err(config(format!("a `%` in the {part} of the URL is not followed by two hex digits"))),
        }
    }
    String::from_utf8(out).map_err(|_| config(format!("the {part} of the URL is not UTF-8 once decoded")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn check(url: &str, shown: &str, password: Option<&str>) -> ConnectOptions {
        let options = ConnectOptions::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(options.to_string(), shown, "{url}");
        assert_eq!(options.password(), password, "{url}");
        options
    }

    fn check_refused(url: &str, names: &str) {
        let error = ConnectOptions::from_url(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(names), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{url}: {text}");
    }

    #[test]
    fn addresses_users_and_databases() {
        check("redis://localhost", "redis://localhost:6379/0", None);
        check("redis://localhost/", "redis://localhost:6379/0", None);
        check("valkey://10.0.0.1:7000/3", "redis://10.0.0.1:7000/3", None);
        check("redis://[::1]:7000/0", "redis://[::1]:7000/0", None);
        check("redis://:pw@h", "redis://:***@h:6379/0", Some("pw"));
        check("redis://u:p%40s%2Fs%25+@h/1", "redis://u:***@h:6379/1", Some("p@s/s%+"));
        check("redis://u@h", "redis://u@h:6379/0", None);
        check("redis://:@h", "redis://h:6379/0", None);
        check("redis://h?db=4&user=u&pass=p", "redis://u:***@h:6379/4", Some("p"));
        check("unix:///run/r.sock", "redis+unix:///run/r.sock?db=0", None);
        check(
            "redis+unix:///run/a%20b.sock?db=1&user=u&pass=p",
            "redis+unix:///run/a b.sock?db=1&user=u&pass=***",
            Some("p"),
        );
    }

    #[test]
    fn parameters_are_taken() {
        let options = ConnectOptions::from_url(
            "redis://h?protocol=resp2&connect_timeout=1500ms&response_timeout=2m&keepalive=60s&client_name=billing",
        )
        .unwrap();
        assert_eq!(options.protocol(), Some(Protocol::Resp2));
        assert_eq!(options.connect_timeout(), Duration::from_millis(1500));
        assert_eq!(options.response_timeout(), Duration::from_mins(2));
        assert_eq!(options.keepalive(), Some(Keepalive::after(Duration::from_mins(1))));
        assert_eq!(options.client_name(), Some("billing"));
        assert_eq!(ConnectOptions::from_url("redis://h?keepalive=off").unwrap().keepalive(), None);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_named() {
        check_refused("redis://h?conect_timeout=5s", "unknown parameter `conect_timeout`");
        check_refused("redis://h?conect_timeout=5s", "known are protocol, connect_timeout,");
        check_refused("redis://h?db=1&db=2", "`db` is given twice");
        check_refused("redis://h/1?db=2", "`db` is given before and after");
        check_refused("redis://a:hunter2@h?pass=hunter2", "`pass` is given before and after");
        check_refused("redis://h?connect_timeout=5", "write 500ms, 5s or 2m");
        check_refused("redis://h?connect_timeout=s", "write 500ms, 5s or 2m");
        check_refused("redis://h?connect_timeout=99999999999999999999s", "write 500ms, 5s or 2m");
        check_refused("redis://h?connect_timeout=0s", "connect_timeout must be between");
        check_refused("redis://h?protocol=resp4", "resp2 or resp3");
        check_refused("redis://h?tls_ca_file=/ca.pem", "needs a rediss:// URL");
        check_refused("redis://h/orders", "database");
        check_refused("redis://h/1/2", "database");
        check_refused("redis:///1", "no host");
        check_refused("redis://:hunter2/x@h", "cannot be parsed");
        check_refused("redis://:hunter2%zz@h", "two hex digits");
        check_refused("redis://:%ffhunter2@h", "not UTF-8");
        check_refused("redis://h#hunter2", "after `#`");
        check_refused("redis://u:1?hunter2@h", "percent-encode a `?`");
        check_refused("redis://u:1?hunter2=3@h", "known are protocol");
        check_refused("redis://h:99999", "cannot be parsed");
        check_refused("redis://h:0", "port 0");
        check_refused("localhost:6379", "unknown scheme `localhost`");
        check_refused("127.0.0.1:6379", "cannot be parsed");
        check_refused("https://h", "scheme is one of");
        check_refused("redis+unix://run/r.sock", "three slashes");
        check_refused("", "cannot be parsed");
    }

    #[cfg(not(feature = "rustls"))]
    #[test]
    fn tls_without_the_feature_names_the_feature() {
        check_refused("rediss://:hunter2@h", "enable the feature `rustls`");
        check_refused("valkeys://h", "enable the feature `rustls`");
    }

    #[cfg(feature = "rustls")]
    #[test]
    fn tls_urls() {
        assert!(check("rediss://:p@h", "rediss://:***@h:6379/0", Some("p")).is_tls());
        check("valkeys://h?danger_accept_invalid_certificates=true", "rediss://h:6379/0", None);
        check_refused("rediss://h?tls_ca_file=/no/such.pem", "/no/such.pem");
        check_refused("rediss://h?tls_certificate_file=/a.pem", "tls_key_file");
        check_refused("rediss://h?danger_accept_invalid_certificates=yes", "true");
        check_refused("rediss://h?insecure=true", "danger_accept_invalid_certificates");
    }
}
