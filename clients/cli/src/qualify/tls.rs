//! Certificates that live as long as the trial, and connections that trust nothing else.

use super::Fault;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, IpAddr, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Authority {
    folder: PathBuf,
    config: Arc<ClientConfig>,
}

impl PartialEq for Authority {
    fn eq(&self, other: &Authority) -> bool {
        self.folder == other.folder
    }
}

impl Eq for Authority {}

impl Authority {
    /// Its files are in that folder.
    pub fn new(folder: &Path) -> Result<Authority, Fault> {
        let ours = |error: &dyn std::fmt::Display| Fault::Ours(format!("certificates: {error}"));
        let key = KeyPair::generate().map_err(|error| ours(&error))?;
        let mut params = parameters("authority").map_err(|error| ours(&error))?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).map_err(|error| ours(&error))?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().map_err(|error| ours(&error))?;
        let params = parameters("server").map_err(|error| ours(&error))?;
        let certificate = params
            .signed_by(&key, &issuer)
            .map_err(|error| ours(&error))?;
        fs::write(folder.join("ca.pem"), root.pem())?;
        fs::write(folder.join("server.pem"), certificate.pem())?;
        fs::write(folder.join("server.key"), key.serialize_pem())?;
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from(root.der().to_vec());
        roots.add(root).map_err(|error| ours(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ours(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Authority {
            folder: folder.to_owned(),
            config: Arc::new(config),
        })
    }

    /// For the server's file.
    pub fn lines(&self) -> Vec<String> {
        let file = |name| self.folder.join(name).display().to_string();
        vec![
            format!("tls-cert-file \"{}\"", file("server.pem")),
            format!("tls-key-file \"{}\"", file("server.key")),
            format!("tls-ca-cert-file \"{}\"", file("ca.pem")),
            "tls-auth-clients no".to_owned(),
        ]
    }
}

fn parameters(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

pub fn wrap(
    authority: &Authority,
    link: TcpStream,
) -> Result<StreamOwned<ClientConnection, TcpStream>, Fault> {
    let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let connection = ClientConnection::new(Arc::clone(&authority.config), name);
    let connection = connection.map_err(|error| Fault::Ours(error.to_string()))?;
    Ok(StreamOwned::new(connection, link))
}
