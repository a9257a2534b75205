//! `tether doctor`: what servers are (facts.rs), their configuration files (files.rs), and what is to say of that (checks.rs).

mod checks;
mod facts;
mod files;

use super::server::{Failure, Server};
use super::{NOTHING, print, print_json};
use crate::address;
use crate::options::Doctor;
use checks::{Finding, Level};
use facts::Node;
use serde_json::json;

pub fn doctor(url: &str, options: &Doctor) -> Result<u8, Failure> {
    let address = address::of(url).map_err(|error| Failure::Refused(error.to_string()))?;
    let mut server = Server::connect(address.clone())?;
    let node = Node::examine(&address, &mut server)?;
    let mut findings = checks::of_server(&node);
    for (host, port) in node.replicas() {
        let address = address::at(&address, &host, port);
        let name = address::name(&address);
        let replica = Server::connect(address.clone())
            .and_then(|mut replica| Node::examine(&address, &mut replica));
        findings.extend(match replica {
            Ok(replica) => checks::of_replica(&replica, &node),
            Err(failure) => checks::of_unreachable(name, &failure),
        });
    }
    for finding in &findings {
        match options.json {
            true => print_json(&as_json(finding))?,
            false => print(&line(finding))?,
        }
    }
    let is_wrong = findings.iter().any(|finding| finding.level == Level::Wrong);
    Ok(if is_wrong { NOTHING } else { 0 })
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "level": finding.level.name(),
        "server": finding.server,
        "finding": finding.what,
        "advice": finding.advice,
    })
}

fn line(finding: &Finding) -> String {
    let Finding {
        level,
        server,
        what,
        advice,
    } = finding;
    let level = level.name();
    let advice = advice
        .as_ref()
        .map_or(String::new(), |advice| format!("        {advice}\n"));
    format!("{level:6}  {server}: {what}\n{advice}")
}
