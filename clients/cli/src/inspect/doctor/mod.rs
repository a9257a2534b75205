//! `tether doctor`: what servers are (facts.rs), their configuration files (files.rs), and what is to say of that (checks.rs).

mod checks;
mod facts;
mod files;

use super::server::{Failure, Server, locate};
use super::{NOTHING, print_json, print_page};
use crate::address::{self, Target};
use crate::options::Doctor;
use crate::output::Page;
use checks::{Finding, Level};
use facts::{Node, Sentinel};
use redis::ConnectionInfo;
use serde_json::json;

pub fn doctor(target: &Target, options: &Doctor) -> Result<u8, Failure> {
    let mut findings = Vec::new();
    if let Target::Sentinels {
        name, sentinels, ..
    } = target
    {
        for sentinel in sentinels {
            findings.extend(match Sentinel::examine(sentinel, name) {
                Ok(sentinel) => {
                    checks::of_sentinel(&sentinel, name, options.grace, options.kill_after)
                }
                Err(failure) => checks::of_unreachable("Sentinel", &failure),
            });
        }
    }
    let address = locate(target)?;
    let mut seen = Vec::new();
    let mut server = Server::connect(address.clone())?;
    let is_cluster = server.is_cluster()?;
    let masters = match is_cluster {
        true => masters(&mut server, address, &mut findings)?,
        false => vec![address],
    };
    for address in &masters {
        match Node::examine(address) {
            Ok(node) => {
                findings.extend(checks::of_server(&node));
                seen.push(node.name.clone());
                look_at_replicas(address, &node, &mut seen, &mut findings);
            }
            Err(failure) if is_cluster => {
                findings.extend(checks::of_unreachable("master", &failure));
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut page = Page::default();
    for finding in &findings {
        match options.json {
            true => print_json(&as_json(finding))?,
            false => show(finding, &mut page),
        }
    }
    print_page(&page)?;
    let is_wrong = findings.iter().any(|finding| finding.level == Level::Wrong);
    Ok(if is_wrong { NOTHING } else { 0 })
}

/// Those of a cluster; the node alone for a user who may not ask who they are.
fn masters(
    server: &mut Server,
    address: ConnectionInfo,
    findings: &mut Vec<Finding>,
) -> Result<Vec<ConnectionInfo>, Failure> {
    match server.masters() {
        Err(Failure::Refused(why)) => {
            findings.push(checks::of_unknown_cluster(&address, &why));
            Ok(vec![address])
        }
        masters => masters,
    }
}

/// All along the chain.
fn look_at_replicas(
    address: &ConnectionInfo,
    node: &Node,
    seen: &mut Vec<String>,
    findings: &mut Vec<Finding>,
) {
    for link in node.replicas() {
        let address = address::at(address, &link.host, link.port);
        let name = address::name(&address);
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        match Node::examine(&address) {
            Ok(replica) => {
                findings.extend(checks::of_replica(&replica, node));
                look_at_replicas(&address, &replica, seen, findings);
            }
            Err(failure) => findings.extend(checks::of_unreachable("replica", &failure)),
        }
    }
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "level": finding.level.name(),
        "server": finding.server,
        "finding": finding.what,
        "advice": finding.advice,
        "command": finding.command,
    })
}

fn show(finding: &Finding, page: &mut Page) {
    let Finding {
        level,
        server,
        what,
        advice,
        command,
    } = finding;
    let name = level.name();
    let server = match server.is_empty() {
        true => String::new(),
        false => format!("{server}: "),
    };
    page.painted(
        level.paint(),
        name.len(),
        format!("{name:6}  {server}{what}"),
    );
    if let Some(advice) = advice {
        page.line(format!("        {advice}"));
    }
    if let Some(command) = command {
        page.line(format!("        $ {command}"));
    }
}
