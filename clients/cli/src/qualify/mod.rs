//! `tether qualify`: tries on a server of its own all that the module does with the server's private functions.
//!
//! - nest.rs: the folder and the processes, which go when the trial does    server.rs: a server of it
//! - client.rs: a connection that sees every frame    tls.rs: certificates
//! - pushes.rs: pushes to clients in each state    blocks.rs: ends of blocks    replicas.rs: acknowledgements, files
//!
//! What is printed can stand in redis.conf: what was found as comments, and the line that says that the server has qualified.

mod blocks;
mod client;
mod nest;
mod pushes;
mod replicas;
mod server;
mod tls;

pub use nest::{ROLE, become_server};

use crate::options::Qualify;
use crate::{codes, output};
use nest::Nest;
use server::{Listens, Server, Wish, Workshop};
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};
use std::time::Instant;
use tls::Authority;

/// The server has not qualified.
const FAILED: u8 = 1;

/// What calls pass in registers that the function called is not known to read: an argument that it reads all the same takes the
/// first as none, and the second as an address at which nothing is, as a flag, or as a very large number.
const UNUSED: [(u64, &str); 2] = [(0, "zero"), (0xa5a5_a5a5_a5a5_a5a5, "poison")];

/// So often a watched key comes and goes for each state of a client, protocol, configuration and value of unused registers: 10^5
/// pushes in all, also where there is no TLS.
const CHANGES: usize = 450;

/// Why there is no line to print.
#[derive(Debug)]
pub enum Fault {
    /// The server does something else than it must.
    Found(String),
    /// It does not start, or not with the module.
    NoStart(String),
    /// The trial itself is not possible.
    Ours(String),
}

impl Fault {
    /// The same, with what was tried.
    fn within(self, what: &str) -> Fault {
        match self {
            Fault::Found(why) => Fault::Found(format!("{what}: {why}")),
            other => other,
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Ours(error.to_string())
    }
}

/// The exit code.
pub fn qualify(options: &Qualify) -> u8 {
    let (code, why) = match attempt(options) {
        Ok(()) => return 0,
        Err(Fault::Found(why)) => (FAILED, format!("this server has not qualified: {why}")),
        Err(Fault::NoStart(why)) => (
            codes::UNREACHABLE,
            format!("the server does not start: {why}"),
        ),
        Err(Fault::Ours(why)) => (codes::FAILED, why),
    };
    output::complain(why);
    code
}

fn attempt(options: &Qualify) -> Result<(), Fault> {
    let program = match &options.server {
        Some(path) => whole(path)?,
        None => server_on_path()?,
    };
    can_run(&program)?;
    let module = match &options.module {
        Some(path) => whole(path)?,
        None => module_nearby()?,
    };
    let workshop = Workshop {
        nest: Nest::new()?,
        program,
        module,
        password: nest::random()?,
    };
    let began = Instant::now();
    let done = examine(&workshop, options.if_needed);
    // Where a signal has ended the servers, that is what is to be seen.
    workshop.nest.stand_by();
    let Some(id) = done? else { return Ok(()) };
    note(&format!("{:.1} seconds", began.elapsed().as_secs_f64()))?;
    output::lines(&format!("tether.qualified {id}\n"))?;
    Ok(())
}

/// The build id of a server that has qualified; none if it needs not.
fn examine(workshop: &Workshop, if_needed: bool) -> Result<Option<String>, Fault> {
    let plain = plain(workshop, None)?;
    let mut client = plain.connect(3)?;
    let info = client.run("INFO server")? + &client.run("INFO tether")?;
    let field = |name| crate::inspect::field(&info, name);
    let version = field("valkey_version").map_or_else(
        || format!("Redis {}", field("redis_version").unwrap_or("?")),
        |version| format!("Valkey {version}"),
    );
    note(&format!("{version}, {}", workshop.program.display()))?;
    let state = field("tether_private_functions").unwrap_or("?").to_owned();
    let refused = client.run("WATCHEX k")?;
    match state.as_str() {
        "known" if if_needed => {
            note("known to tether: nothing to do")?;
            return Ok(None);
        }
        "known" | "unknown" => {}
        _ => return Err(Fault::Found(plainly(&refused))),
    }
    plain.end();
    let mut id = String::new();
    for (unused, name) in UNUSED {
        id = all(workshop, unused, name)?;
    }
    Ok(Some(id))
}

fn plain(workshop: &Workshop, unused: Option<u64>) -> Result<Server<'_>, Fault> {
    workshop.start(Wish {
        name: "plain",
        unused,
        lines: &[],
        listens: Listens::Nowhere,
    })
}

/// Everything, with this in unused registers. The build id of the server.
fn all(workshop: &Workshop, unused: u64, name: &str) -> Result<String, Fault> {
    let threads = ["io-threads 4".to_owned()];
    let authority = Authority::new(workshop.nest.folder())?;
    let mut id = None;
    let wishes: [(&str, &[String], Listens<'_>); 4] = [
        ("plain", &[], Listens::Nowhere),
        ("threads", &threads, Listens::Nowhere),
        ("cluster", &[], Listens::Cluster),
        ("tls", &[], Listens::Tls(&authority)),
    ];
    for (kind, lines, listens) in wishes {
        let folder = format!("{kind}-{name}");
        let wish = Wish {
            name: &folder,
            unused: Some(unused),
            lines,
            listens,
        };
        let label = format!("{kind}, {name} in unused registers");
        let server = match workshop.start(wish) {
            Err(Fault::NoStart(why)) if kind == "tls" && is_without_tls(&why) => {
                note(&format!("{label}: the server is built without TLS"))?;
                continue;
            }
            other => other?,
        };
        let pushes = one(&server, listens).map_err(|fault| server.explain(fault).within(&label))?;
        note(&format!("{label}: ok, {pushes} pushes"))?;
        id = id.or(identity(&server)?);
        server.end();
    }
    let label = format!("replica and files, {name} in unused registers");
    replicas::attempt(workshop, unused, name).map_err(|fault| fault.within(&label))?;
    note(&format!("{label}: ok"))?;
    id.ok_or_else(|| Fault::Ours("the system does not show which program runs (/proc)".to_owned()))
}

/// The number of pushes.
fn one(server: &Server, listens: Listens<'_>) -> Result<u64, Fault> {
    let mut client = server.connect(3)?;
    let info = client.run("INFO tether")?;
    if crate::inspect::field(&info, "tether_private_functions") != Some("trial") {
        return Err(Fault::Found(plainly(&client.run("WATCHEX k")?)));
    }
    if listens == Listens::Cluster {
        client.expect("CLUSTER ADDSLOTSRANGE 0 16383", "OK")?;
        client.until("CLUSTER INFO", |info| info.contains("cluster_state:ok"))?;
    }
    pushes::try_all(server, CHANGES)?;
    blocks::try_all(server)?;
    client.until("INFO tether", |info| {
        crate::inspect::field(info, "tether_holds") == Some("0")
    })?;
    let info = client.run("INFO tether")?;
    match crate::inspect::field(&info, "tether_fault") {
        Some(fault) => Err(Fault::Found(format!("the module has stopped: {fault}"))),
        None => client.gauge("tether", "tether_pushes_sent_total"),
    }
}

/// A refusal without what clients need of it.
fn plainly(refusal: &str) -> String {
    refusal.trim_start_matches("error ERR ").to_owned()
}

fn identity(server: &Server) -> Result<Option<String>, Fault> {
    let info = server.connect(3)?.run("INFO tether")?;
    Ok(crate::inspect::field(&info, "tether_server_build_id").map(str::to_owned))
}

fn is_without_tls(why: &str) -> bool {
    ["Bad directive", "Failed finding TLS support"]
        .iter()
        .any(|text| why.contains(text))
}

fn note(text: &str) -> io::Result<()> {
    output::lines(&format!("# {text}\n"))
}

fn whole(path: &Path) -> Result<PathBuf, Fault> {
    let whole = path::absolute(path)?;
    match whole.is_file() {
        true => Ok(whole),
        false => Err(Fault::NoStart(format!("{}: no such file", path.display()))),
    }
}

/// A script, or a program for this kind of machine, as this one is. The system would have a shell read anything else.
fn can_run(program: &Path) -> Result<(), Fault> {
    /// Of an ELF header: what it begins with, the size of words and the order of bytes, and the machine.
    fn kind(file: &Path) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        File::open(file)?.take(20).read_to_end(&mut head)?;
        head.resize(20, 0);
        Ok([&head[..6], &head[18..]].concat())
    }
    let found = kind(program)?;
    match found.starts_with(b"#!") || found == kind(Path::new("/proc/self/exe"))? {
        true => Ok(()),
        false => Err(Fault::NoStart(format!(
            "{}: no program for this kind of machine",
            program.display()
        ))),
    }
}

/// As a shell would find it.
fn server_on_path() -> Result<PathBuf, Fault> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let names = ["redis-server", "valkey-server"].iter();
    let mut files = names.flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let missing = "neither redis-server nor valkey-server is on PATH; name one with --server";
    files
        .find(|file| file.is_file())
        .ok_or_else(|| Fault::NoStart(missing.to_owned()))
}

/// Where it is built and where the package has it.
fn module_nearby() -> Result<PathBuf, Fault> {
    const NAME: &str = "libtether.so";
    let ours = env::current_exe()?;
    let folder = ours.parent().unwrap_or(Path::new("/"));
    let mut files = [folder.join(NAME), folder.join("../lib/tether").join(NAME)].into_iter();
    let missing = format!(
        "{NAME} is not beside {}; name it with --module",
        ours.display()
    );
    files
        .find(|file| file.is_file())
        .ok_or(Fault::NoStart(missing))
}
