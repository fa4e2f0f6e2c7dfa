//! URLs that name several hosts: those of sentinels and clusters.

use ::url::{Host, Url};

use super::{ConnectOptions, config, url};
use crate::Error;

/// What a URL with several hosts says.
pub(crate) struct Hosts {
    /// In the order of the URL, at least one; IPv6 without brackets.
    pub(crate) addresses: Vec<(String, u16)>,
    /// What stands between the slashes of the path.
    pub(crate) path: Vec<String>,
    /// Everything else, for a server at the first of the hosts.
    pub(crate) options: ConnectOptions,
    /// The parameters in `own`, in the order of `own`.
    pub(crate) own: Vec<Option<String>>,
}

/// Reads `scheme://[user[:password]@]host[:port][,host[:port]…][/path][?parameters]`, in which `+kind` of the scheme was
/// recognised. Parameters in `own` are the caller's, all others those of [`ConnectOptions`].
pub(crate) fn split(text: &str, kind: &str, default_port: u16, own: &[&str]) -> Result<Hosts, Error> {
    let form =
        || config(format!("the URL is not of the form redis+{kind}://[user[:password]@]host[:port],host[:port]"));
    let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let addresses: Vec<_> = hosts.split(',').map(|host| address(host, default_port)).collect::<Result<_, _>>()?;
    let at = if user.is_empty() { "" } else { "@" };
    let first = hosts.split(',').next().unwrap_or_default();
    let scheme = match scheme.strip_suffix(kind).and_then(|scheme| scheme.strip_suffix('+')) {
        Some("redis" | "valkey") => "redis",
        Some("rediss" | "valkeys") => "rediss",
        _ => return Err(form()),
    };
    if rest.split_once('?').is_some_and(|(_, query)| query.contains('@')) {
        // Most likely the rest of a password, which must not be shown.
        return Err(config(
            "the URL has an `@` after its `?`: percent-encode a `?` in a password as %3F, and an `@` as %40",
        ));
    }
    // Without the path, which means something else here; an error of the parser names what is wrong with the rest.
    let mut single =
        Url::parse(&format!("{scheme}://{user}{at}{first}{rest}")).map_err(|error| form().with_source(error))?;
    let path =
        single.path_segments().into_iter().flatten().filter(|part| !part.is_empty()).map(str::to_owned).collect();
    single.set_path("");
    let pairs: Vec<(String, String)> = single.query_pairs().into_owned().collect();
    let mut found = vec![None; own.len()];
    single.set_query(None);
    for (name, value) in pairs {
        match own.iter().position(|own| *own == name) {
            Some(place) if found[place].is_some() => {
                return Err(config(format!("the parameter `{name}` is given twice in the URL")));
            }
            Some(place) => found[place] = Some(value),
            None => {
                single.query_pairs_mut().append_pair(&name, &value);
            }
        }
    }
    Ok(Hosts { addresses, path, options: url::parse(single.as_str())?.build()?, own: found })
}

fn address(text: &str, default_port: u16) -> Result<(String, u16), Error> {
    let wrong = || config("one of the hosts in the URL is empty or cannot be parsed: expected host[:port],host[:port]");
    let url = Url::parse(&format!("redis://{text}")).map_err(|error| wrong().with_source(error))?;
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    match url.port().unwrap_or(default_port) {
        port if port > 0 && !host.is_empty() => Ok((host, port)),
        _ => Err(wrong()),
    }
}
