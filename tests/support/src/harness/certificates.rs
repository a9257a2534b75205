//! What a server and its clients need to speak TLS to each other, of an authority that nobody else knows.

use super::{Server, free_port, say, server_binary};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Files in a folder of their own: `ca.pem`, and for `server` and `client` each a certificate `.pem` and a key `.key`.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// For servers at 127.0.0.1.
    pub fn new() -> Certificates {
        let folder = TempDir::with_prefix("tether-tls-").expect("a temporary folder");
        let certificates = Certificates { folder };
        let key = KeyPair::generate().expect("a key");
        let mut params = parameters("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("an authority");
        certificates.write("ca.pem", &ca.pem());
        let issuer = Issuer::new(params, key);
        for who in ["server", "client"] {
            let key = KeyPair::generate().expect("a key");
            let params = parameters(who);
            let certificate = params.signed_by(&key, &issuer).expect("a certificate");
            certificates.write(&format!("{who}.pem"), &certificate.pem());
            certificates.write(&format!("{who}.key"), &key.serialize_pem());
        }
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file of ours")
    }

    /// A server that speaks TLS at a second port; None if it is built without. `auth_clients` is yes or no.
    pub fn serve(&self, auth_clients: &str) -> Option<(Server, u16)> {
        if !has_tls() {
            say("this server is built without TLS");
            return None;
        }
        let port = free_port();
        let file = |name| self.path(name).display().to_string();
        let lines = [
            format!("tls-port {port}"),
            format!("tls-cert-file {}", file("server.pem")),
            format!("tls-key-file {}", file("server.key")),
            format!("tls-ca-cert-file {}", file("ca.pem")),
            format!("tls-auth-clients {auth_clients}"),
        ];
        let lines = lines.each_ref().map(String::as_str);
        Some((Server::with(&lines), port))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file of ours");
    }
}

/// Whether the server's program can speak TLS. Asked to without a certificate, it ends at once and says which of the two is missing.
fn has_tls() -> bool {
    let mut start = Command::new(server_binary());
    let output = start.args(["--port", "0", "--tls-port", "1"]).output();
    let output = output.expect("the server's program");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let without = ["Failed finding TLS support", "Bad directive"];
    !without.iter().any(|text| said.contains(text))
}

/// Whoever has the same name as its authority would be taken for one that signed itself.
fn parameters(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Default for Certificates {
    fn default() -> Certificates {
        Certificates::new()
    }
}
