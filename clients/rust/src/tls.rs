//! What TLS needs beside what the system trusts.

use crate::error::Error;
use crate::socket::Stream;
use tokio::net::TcpStream;

/// All in the PEM format.
#[derive(Clone, Default)]
pub struct Certificates {
    #[cfg(feature = "tls")]
    pub authority: Option<Vec<u8>>,
    /// A chain and its key.
    #[cfg(feature = "tls")]
    pub own: Option<(Vec<u8>, Vec<u8>)>,
}

/// How to speak TLS, where an address asks for it.
#[derive(Clone, Default)]
pub struct Tls {
    #[cfg(feature = "tls")]
    config: Option<std::sync::Arc<rustls::ClientConfig>>,
}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub fn new(_: &Certificates) -> Result<Tls, Error> {
        Ok(Tls::default())
    }

    pub async fn connect(&self, _: &str, _: TcpStream) -> Result<Box<dyn Stream>, Error> {
        Err(Error::Refused("TLS needs the feature `tls`".to_owned()))
    }
}

#[cfg(feature = "tls")]
impl Tls {
    pub fn new(certificates: &Certificates) -> Result<Tls, Error> {
        // An error is that the program has chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let roots = roots(certificates.authority.as_deref())?;
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
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

    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<Box<dyn Stream>, Error> {
        let config = self.config.clone().ok_or_else(|| unfit("no TLS here"))?;
        let host = rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(unfit)?;
        let connecting = tokio_rustls::TlsConnector::from(config).connect(host, stream);
        match connecting.await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(Error::Unreachable(error.to_string())),
        }
    }
}

#[cfg(feature = "tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// The authority that was given, otherwise those that the system trusts.
#[cfg(feature = "tls")]
fn roots(authority: Option<&[u8]>) -> Result<rustls::RootCertStore, Error> {
    let mut roots = rustls::RootCertStore::empty();
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

#[cfg(feature = "tls")]
fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates = CertificateDer::pem_slice_iter(pem);
    certificates.collect::<Result<_, _>>().map_err(unfit)
}

#[cfg(feature = "tls")]
fn unfit(error: impl std::fmt::Display) -> Error {
    Error::Refused(format!("TLS: {error}"))
}
