//! [`ExternalServer`]: the server that `REDIS_URL` names. It is used as it is and never emptied.

use std::fmt;

use url::Url;

use super::MatrixError;

/// Address and credentials of a server that runs already.
#[derive(Clone)]
pub(crate) struct ExternalServer {
    url: String,
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
}

impl ExternalServer {
    /// Reads `redis://[user][:password@]host[:port]/`. The errors do not show the URL: it may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, MatrixError> {
        let wrong = |why| MatrixError::ExternalUrl { why };
        let url = Url::parse(text).map_err(|_| wrong("is not a URL; write redis://HOST:PORT/"))?;
        if url.scheme() != "redis" {
            return Err(wrong("has to start with redis://; the test kit speaks neither TLS nor unix sockets"));
        }
        if !matches!(url.path(), "" | "/" | "/0") {
            return Err(wrong("names a database other than 0, which the test kit does not select"));
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(wrong("names no host"))?.to_owned();
        let text_of = |part: &str| (!part.is_empty()).then(|| unescape(part));
        Ok(Self {
            url: text.to_owned(),
            host,
            port: url.port().unwrap_or(6379),
            user: text_of(url.username()),
            password: url.password().and_then(text_of),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// User, if one is named, and password.
    pub(crate) fn credentials(&self) -> Option<(Option<String>, String)> {
        Some((self.user.clone(), self.password.clone()?))
    }
}

impl fmt::Debug for ExternalServer {
    /// The address only: the URL may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

/// Undoes percent encoding; what is no valid escape stays as it is.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        out.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_gives_address_and_credentials_and_shows_no_password() {
        let server = ExternalServer::parse("redis://me:p%40ss%zz@localhost:7001/").unwrap();
        assert_eq!(server.address(), "localhost:7001");
        assert_eq!(server.credentials(), Some((Some("me".into()), "p@ss%zz".into())));
        assert!(!format!("{server:?}").contains("p@ss") && !format!("{server:?}").contains("p%40ss"));

        let plain = ExternalServer::parse("redis://10.0.0.1").unwrap();
        assert_eq!((plain.address().as_str(), plain.credentials()), ("10.0.0.1:6379", None));
    }

    #[test]
    fn a_url_that_the_kit_cannot_use_is_refused_without_showing_it() {
        #[track_caller]
        fn check(url: &str, why: &str) {
            let error = ExternalServer::parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
        check("secret", "not a URL");
        check("rediss://:secret@localhost/", "redis://");
        check("redis://:secret@localhost/3", "database");
    }
}
