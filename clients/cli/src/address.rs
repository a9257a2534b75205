//! Where a server is, and how to speak to it there.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult};
use tether_client::{Builder, Locks};

/// What Sentinels listen at.
const SENTINELS_PORT: &str = "26379";

/// What `--url` names: a server, or the master that Sentinels know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Its URL.
    Server(String),
    Sentinels {
        /// How to speak to the master: a URL with its name in the place of the host.
        master: String,
        name: String,
        sentinels: Vec<String>,
    },
}

impl Target {
    /// Of `redis://`, `rediss://`, `unix://`, or with Sentinels
    /// `redis+sentinel://[user:password@]host[:port][,host[:port]...]/name[/database]` (`rediss+sentinel://` for TLS).
    ///
    /// # Errors
    /// What is wrong with it, without the URL, which may hold a password.
    pub fn parse(url: &str) -> Result<Target, String> {
        let target = match url.split_once("+sentinel://") {
            Some((scheme, rest)) => Target::of_sentinels(scheme, rest)?,
            None => Target::Server(url.to_owned()),
        };
        let (Target::Server(url) | Target::Sentinels { master: url, .. }) = &target;
        of(url).map_err(|_| FORMS.to_owned())?;
        Ok(target)
    }

    fn of_sentinels(scheme: &str, rest: &str) -> Result<Target, String> {
        let wrong = || "it has no master's name: redis+sentinel://host,host,host/name".to_owned();
        let (authority, path) = rest.split_once('/').ok_or_else(wrong)?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (path, String::new()),
        };
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() || hosts.is_empty() {
            return Err(wrong());
        }
        // A slash in the password, which is to be escaped.
        if name.contains('@') {
            return Err(FORMS.to_owned());
        }
        let sentinel = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => format!("{scheme}://{host}"),
            _ => format!("{scheme}://{host}:{SENTINELS_PORT}"),
        };
        let sentinels: Vec<_> = hosts.split(',').map(sentinel).collect();
        if sentinels.iter().any(|sentinel| of(sentinel).is_err()) {
            return Err(FORMS.to_owned());
        }
        Ok(Target::Sentinels {
            master: format!("{scheme}://{user}{name}/{db}{query}"),
            name: name.to_owned(),
            sentinels,
        })
    }

    /// For people; without user and password.
    pub fn name(&self) -> String {
        match self {
            Target::Server(url) => of(url).map_or_else(|_| String::new(), |it| name(&it)),
            Target::Sentinels { name, .. } => format!("the master '{name}'"),
        }
    }

    /// A client of it.
    pub fn builder(&self) -> Builder {
        match self {
            Target::Server(url) => Locks::builder(url),
            Target::Sentinels {
                master, sentinels, ..
            } => Locks::builder(master).sentinels(sentinels.clone()),
        }
    }
}

const FORMS: &str = "a URL is redis://[user:password@]host[:port][/database], rediss:// for TLS, unix:///path, or \
                     redis+sentinel://[user:password@]host[,host...]/name[/database]";

/// With RESP3, which has maps and pushes.
pub fn of(url: &str) -> RedisResult<ConnectionInfo> {
    // For rediss://. An error is that it is done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = url.into_connection_info()?;
    let settings = address.redis_settings().clone();
    Ok(address.set_redis_settings(settings.set_protocol(ProtocolVersion::RESP3)))
}

/// For people; without user and password.
pub fn name(address: &ConnectionInfo) -> String {
    address.addr().to_string()
}

/// How a shell speaks to it; without the password, which is asked for.
pub fn redis_cli(address: &ConnectionInfo) -> String {
    let place = match address.addr() {
        ConnectionAddr::Tcp(host, port) => format!("-h {} -p {port}", quoted(host)),
        ConnectionAddr::TcpTls { host, port, .. } => {
            format!("-h {} -p {port} --tls", quoted(host))
        }
        ConnectionAddr::Unix(path) => format!("-s {}", quoted(&path.display().to_string())),
        other => quoted(&other.to_string()),
    };
    let settings = address.redis_settings();
    let mut words = format!("redis-cli {place}");
    if settings.password().is_some() {
        if let Some(user) = settings.username() {
            words.push_str(&format!(" --user {}", quoted(user)));
        }
        words.push_str(" --askpass");
    }
    words
}

/// A word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-:/@%+=,".contains(letter);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Whether the server is certainly on this machine, or behind a port of it.
pub fn is_here(address: &ConnectionInfo) -> bool {
    match address.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            let ip = host.parse::<std::net::IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        }
        ConnectionAddr::Unix(_) => true,
        _ => false,
    }
}

/// Another server, spoken to in the same way: user, password, TLS.
pub fn at(address: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let there = match address.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    address.clone().set_addr(there)
}

/// The same for a node as another one of its cluster names it: one without a host is at the host of the one that says it.
pub fn at_node(address: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let here = match address.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        // It is asked by a socket of this machine.
        _ => "127.0.0.1",
    };
    let is_unsaid = host.is_empty() || host == "?";
    at(address, if is_unsaid { here } else { host }, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_server_is_spoken_to_in_the_same_way() {
        let first = of("redis://me:secret@first:1/2").unwrap();
        let other = at(&first, "other", 7);
        assert_eq!(name(&other), "other:7");
        assert_eq!(other.redis_settings().username(), Some("me"));
        assert_eq!(other.redis_settings().db(), 2);
    }

    #[test]
    fn a_shell_speaks_to_it_in_the_same_way_too() {
        for (url, words) in [
            ("redis://one:7", "redis-cli -h one -p 7"),
            ("rediss://one", "redis-cli -h one -p 6379 --tls"),
            (
                "redis://me:se%20cret@one",
                "redis-cli -h one -p 6379 --user me --askpass",
            ),
            ("redis://:secret@one", "redis-cli -h one -p 6379 --askpass"),
            ("unix:///a%20b", "redis-cli -s '/a b'"),
        ] {
            assert_eq!(redis_cli(&of(url).unwrap()), words);
        }
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
    }

    #[test]
    fn resp3_is_spoken() {
        let settings = |url| of(url).unwrap().redis_settings().clone();
        assert_eq!(settings("redis://first").protocol(), ProtocolVersion::RESP3);
        let other = settings("redis://first/3?protocol=resp2");
        assert_eq!((other.protocol(), other.db()), (ProtocolVersion::RESP3, 3));
    }

    #[test]
    fn sentinels_are_named_in_one_url() {
        let sentinels = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect();
        assert_eq!(
            Target::parse("redis+sentinel://me:se@cret@one,two:7,[::1]/mymaster/2"),
            Ok(Target::Sentinels {
                master: "redis://me:se@cret@mymaster/2".to_owned(),
                name: "mymaster".to_owned(),
                sentinels: sentinels(&[
                    "redis://one:26379",
                    "redis://two:7",
                    "redis://[::1]:26379"
                ]),
            })
        );
        let secure = Target::parse("rediss+sentinel://one/m").unwrap();
        assert!(matches!(secure, Target::Sentinels { master, .. } if master == "rediss://m/"));
    }

    #[test]
    fn what_is_no_url_is_refused_without_its_password() {
        for url in [
            "nonsense:secret",
            "http://me:secret@host",
            "redis+sentinel://me:secret@one",
            "redis+sentinel://me:secret@/m",
            "other+sentinel://me:secret@one/m",
            "redis+sentinel://me:26379/secret@one/0",
        ] {
            let why = Target::parse(url).unwrap_err();
            assert!(!why.contains("secret"), "{url}: {why}");
        }
    }
}
