//! What TLS needs beside what the system trusts.

use crate::error::Error;
use crate::socket::Socket;

/// All in the PEM format.
#[derive(Clone, Default)]
pub struct Certificates {
    #[cfg(feature = "tls")]
    pub authority: Option<Vec<u8>>,
    /// A chain and its key.
    #[cfg(feature = "tls")]
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(not(feature = "tls"))]
pub use without::{Tls, TlsStream};

#[cfg(feature = "tls")]
pub use with::{Tls, TlsStream};

#[cfg(not(feature = "tls"))]
mod without {
    use super::*;
    use std::io;

    /// How to speak TLS: not at all.
    #[derive(Clone, Default)]
    pub struct Tls;

    /// There is none.
    pub enum TlsStream {}

    impl Tls {
        pub fn new(_: &Certificates) -> Result<Tls, Error> {
            Ok(Tls)
        }

        #[expect(clippy::unused_async, reason = "as with TLS")]
        pub async fn connect(&self, _: &str, _: &Socket) -> Result<TlsStream, Error> {
            Err(Error::Refused("TLS needs the feature `tls`".to_owned()))
        }
    }

    impl TlsStream {
        pub fn write(&mut self, _: &[u8]) -> io::Result<()> {
            match *self {}
        }

        pub fn flush(&mut self, _: &Socket) -> io::Result<bool> {
            match *self {}
        }

        pub fn has_more(&self) -> bool {
            match *self {}
        }

        pub fn read(&mut self, _: &Socket, _: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }
    }
}

#[cfg(feature = "tls")]
mod with {
    use super::*;
    use rustls::crypto::CryptoProvider;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::io::{self, ErrorKind, Read, Write};
    use std::sync::Arc;

    /// How to speak TLS, where an address asks for it.
    #[derive(Clone, Default)]
    pub struct Tls {
        config: Option<Arc<ClientConfig>>,
    }

    /// An encrypted stream over a socket.
    pub struct TlsStream(Box<ClientConnection>);

    impl Tls {
        pub fn new(certificates: &Certificates) -> Result<Tls, Error> {
            // That of the process, if it has chosen one.
            let provider = CryptoProvider::get_default().cloned();
            let provider =
                provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(unfit)?
                .with_root_certificates(roots(certificates.authority.as_deref())?);
            let config = match &certificates.own {
                None => config.with_no_client_auth(),
                Some((chain, key)) => {
                    let chain = read_certificates(chain)?;
                    let key = PrivateKeyDer::from_pem_slice(key).map_err(unfit)?;
                    config.with_client_auth_cert(chain, key).map_err(unfit)?
                }
            };
            Ok(Tls {
                config: Some(config.into()),
            })
        }

        /// P-CONN-8.
        pub async fn connect(&self, host: &str, socket: &Socket) -> Result<TlsStream, Error> {
            let config = self.config.clone().ok_or_else(|| unfit("no TLS here"))?;
            let host = ServerName::try_from(host.to_owned()).map_err(unfit)?;
            let tls = ClientConnection::new(config, host).map_err(unfit)?;
            let mut stream = TlsStream(Box::new(tls));
            stream.greet(socket).await.map_err(|error| {
                let cause = error
                    .get_ref()
                    .and_then(|it| it.downcast_ref::<rustls::Error>());
                match cause {
                    Some(rustls::Error::InvalidCertificate(_)) => unfit(error),
                    _ => Error::Unreachable(error.to_string()),
                }
            })?;
            Ok(stream)
        }
    }

    impl TlsStream {
        async fn greet(&mut self, socket: &Socket) -> io::Result<()> {
            loop {
                while self.0.wants_write() {
                    match self.0.write_tls(&mut &*socket) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            socket.ready(tokio::io::Interest::WRITABLE).await?;
                        }
                        written => _ = written?,
                    }
                }
                if !self.0.is_handshaking() {
                    return Ok(());
                }
                socket.readable().await?;
                match self.0.read_tls(&mut &*socket) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
                if let Err(error) = self.0.process_new_packets() {
                    // The server may want to know why.
                    let _ = self.0.write_tls(&mut &*socket);
                    return Err(io::Error::new(ErrorKind::InvalidData, error));
                }
            }
        }

        /// Encrypts this, to be flushed.
        pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.set_buffer_limit(None);
            self.0.writer().write_all(bytes)
        }

        /// Whether there may be more to write, after a step.
        pub fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
            if !self.0.wants_write() {
                return Ok(false);
            }
            self.0.write_tls(&mut &*socket).map(|_| true)
        }

        pub fn has_more(&self) -> bool {
            self.0.wants_write()
        }

        /// Some of what has come; 0 is the end.
        pub fn read(&mut self, socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
            loop {
                match self.0.reader().read(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                }
                if self.0.read_tls(&mut &*socket)? == 0 {
                    return Ok(0);
                }
                let processed = self.0.process_new_packets();
                processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            }
        }
    }

    /// The authority that was given, otherwise those that the system trusts.
    fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        match authority {
            Some(authority) => {
                for certificate in read_certificates(authority)? {
                    roots.add(certificate).map_err(unfit)?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }

    fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
        let certificates = CertificateDer::pem_slice_iter(pem);
        certificates.collect::<Result<_, _>>().map_err(unfit)
    }

    fn unfit(error: impl std::fmt::Display) -> Error {
        Error::Refused(format!("TLS {error}"))
    }
}
