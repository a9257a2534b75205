//! Where a server is, and how to speak to it there.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisResult};

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
    fn resp3_is_spoken() {
        let settings = |url| of(url).unwrap().redis_settings().clone();
        assert_eq!(settings("redis://first").protocol(), ProtocolVersion::RESP3);
        let other = settings("redis://first/3?protocol=resp2");
        assert_eq!((other.protocol(), other.db()), (ProtocolVersion::RESP3, 3));
    }
}
