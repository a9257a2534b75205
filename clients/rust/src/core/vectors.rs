//! The loader of `clients/protocol/vectors`: each step is one input, and all that comes out of it is compared.

use super::*;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The core, and what the vectors' names stand for.
struct World {
    core: Core,
    clocks: Now,
    names: Vec<String>,
    /// How the requests ended that the core has forgotten.
    lost: HashMap<Id, Loss>,
}

fn ms(value: &Value) -> Duration {
    Duration::from_secs_f64(value.as_f64().unwrap() / 1000.0)
}

fn bytes(value: &Value) -> Bytes {
    let Some(hex) = value.get("hex") else {
        return value.as_str().unwrap().into();
    };
    let hex = hex.as_str().unwrap().as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.map(byte).collect()
}

fn keys(value: &Value) -> Vec<Bytes> {
    value.as_array().unwrap().iter().map(bytes).collect()
}

fn frame(value: &Value) -> Frame {
    let all = |items: &Value| items.as_array().unwrap().iter().map(frame).collect();
    let Value::Object(object) = value else {
        return match value {
            Value::Null => Frame::Null,
            Value::Number(number) => Frame::Int(number.as_i64().unwrap()),
            Value::Array(_) => Frame::Array(all(value)),
            _ => Frame::Bytes(bytes(value)),
        };
    };
    let of = |map: &serde_json::Map<String, Value>| {
        let pairs = map.iter();
        Frame::Map(
            pairs
                .map(|(name, value)| (Frame::Bytes(name.clone().into()), frame(value)))
                .collect(),
        )
    };
    match object.iter().next().unwrap() {
        (kind, _) if kind == "hex" => Frame::Bytes(bytes(value)),
        (kind, text) if kind == "simple" => Frame::Bytes(bytes(text)),
        (kind, text) if kind == "error" => Frame::Error(text.as_str().unwrap().to_owned()),
        (kind, push) if kind == "push" => Frame::Push(all(push)),
        (kind, Value::Object(map)) if kind == "map" => of(map),
        _ => of(object),
    }
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => {
            json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()})
        }
    }
}

fn config(client: &Value) -> Config {
    let time = |name: &str| client.get(name).map(ms);
    let is = |name: &str| client.get(name) == Some(&json!(true));
    Config {
        grace: time("grace"),
        fence: time("fence"),
        stop_within: time("stop_within").unwrap_or_default(),
        is_unix: is("unix"),
        is_cluster: is("cluster"),
        boot_clock: match client.get("boot_clock") {
            Some(Value::Bool(false)) => BootClock::Missing,
            Some(Value::String(_)) => BootClock::Rounded,
            _ => BootClock::Exact,
        },
        random: Some(client.get("random").and_then(Value::as_f64).unwrap_or(0.0)),
        ..Config::default()
    }
}

fn ask(step: &Value) -> Ask {
    let time = |name: &str| step.get(name).map(ms);
    let number = |value: &Value| value.as_u64().unwrap();
    let is = |name: &str| step.get(name) == Some(&json!(true));
    let mode = match step.get("permits").and_then(Value::as_array) {
        Some(permits) => Mode::Permits {
            permits: number(&permits[0]),
            total: number(&permits[1]),
        },
        None if is("shared") => Mode::Shared,
        None => Mode::Exclusive,
    };
    let temporary = |value| Kind::Temporary {
        value: bytes(value),
        is_sequence: is("seq"),
        is_elected: is("elect"),
    };
    Ask {
        owner: step.get("owner").map(bytes),
        task: step.get("task").map(bytes),
        wait: time("wait"),
        lease: time("lease"),
        is_reentrant: is("reentrant"),
        acks: step.get("acks").map(number),
        ack_timeout: time("acktimeout"),
        at_least: time("at_least").unwrap_or_default(),
        ..Ask::new(
            keys(&step["keys"]),
            step.get("temporary").map_or(Kind::Lock(mode), temporary),
        )
    }
}

impl World {
    fn new(client: &Value) -> World {
        World {
            core: Core::new(Now::default(), config(client)),
            clocks: Now::default(),
            names: Vec::new(),
            lost: HashMap::new(),
        }
    }

    fn id(&mut self, name: &Value) -> Id {
        let name = name.as_str().unwrap_or_default();
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        at as Id
    }

    /// By all that is due on the way; two clocks that differ are a leap.
    fn go_to(&mut self, to: &Value, ticks: bool) {
        let ahead = self.clocks.boot - self.clocks.mono;
        let (mono, boot) = match to.get("mono") {
            Some(mono) => (ms(mono), ms(&to["boot"])),
            None => (ms(to), ms(to) + ahead),
        };
        let mut count = 0;
        while let Some(after) = self.core.next_tick().filter(|_| ticks && !to.is_object()) {
            count += 1;
            assert!(count < 10_000, "a timer that is due again and again");
            let at = self.clocks.mono + after;
            if at > mono {
                break;
            }
            self.clocks = Now {
                mono: at,
                boot: at + ahead,
            };
            self.core.tick(self.clocks);
        }
        self.clocks = Now { mono, boot };
        match ticks {
            true => self.core.tick(self.clocks),
            false => self.core.set_now(self.clocks),
        }
    }

    fn call(&mut self, call: &str, step: &Value) -> Option<Value> {
        let id = self.id(&step["id"]);
        let core = &mut self.core;
        match call {
            "open" => core.open(),
            "acquire" => core.acquire(id, ask(step)),
            "release" => core.release(id),
            "give_up" => core.give_up(id),
            "extend" => core.extend(id, ms(&step["lease"])),
            "raise" => core.raise(id, step["token"].as_u64().unwrap()),
            "watch" => core.watch(id, keys(&step["keys"]), Told::default()),
            "unwatch" => core.unwatch(id),
            "presence" => core.presence(id, bytes(&step["prefix"]), Told::default()),
            "observe" => core.observe(id, bytes(&step["prefix"]), Told::default()),
            "end" => core.end_presence(id),
            "close" => core.close(),
            "check" => {
                let ended = || {
                    self.lost
                        .get(&id)
                        .cloned()
                        .map_or(Status::Released, Status::Lost)
                };
                return Some(match core.check(id).unwrap_or_else(ended) {
                    Status::Lost(loss) => json!({"lost": loss.reason()}),
                    status => json!(format!("{status:?}").to_lowercase()),
                });
            }
            other => panic!("no call {other}"),
        }
        None
    }

    /// What is wrong with it.
    fn step(&mut self, step: &Value) -> Vec<String> {
        let mut gives = None;
        if let Some(call) = step.get("call") {
            gives = self.call(call.as_str().unwrap(), step);
        } else if let Some(received) = step.get("recv") {
            self.core.recv(frame(received));
        } else if let Some(to) = step.get("at") {
            self.go_to(to, true);
        } else if let Some(to) = step.get("stop") {
            self.go_to(to, false);
        } else if step.get("connected").is_some() {
            self.core.connected();
        } else if step.get("broke").is_some() {
            self.core.broke();
        } else {
            let code = step["unreached"].get("code").and_then(Value::as_str);
            let refused = code.map(|code| Error::Refused(code.to_owned()));
            self.core.unreached(refused.unwrap_or_else(Error::late));
        }
        let sent = self.core.take_out();
        let sent = sent
            .iter()
            .map(|words| words.iter().map(|word| text(word)).collect::<Value>());
        let orders = self.core.take_orders();
        let events = self.core.take_events();
        let said = [
            ("sent", sent.collect()),
            (
                "events",
                events.into_iter().map(|event| self.event(event)).collect(),
            ),
            ("orders", orders.into_iter().map(order).collect::<Value>()),
            ("gives", gives.unwrap_or(Value::Null)),
        ];
        let wrong = said.into_iter().filter_map(|(what, is)| {
            let none = if what == "gives" {
                Value::Null
            } else {
                json!([])
            };
            let wanted = step.get(what).unwrap_or(&none);
            (is != *wanted).then(|| format!("{what}: {is}, not {wanted}"))
        });
        wrong.collect()
    }

    fn event(&mut self, event: Event) -> Value {
        let name = |id: Id| self.names[id as usize].clone();
        let failed = |what: &str, id, error: &Error| json!({what: name(id), "error": error.name(), "code": error.code()});
        let member = |mut value: Value, member: &Member| {
            value["token"] = json!(member.token);
            value["value"] = member.value.as_deref().map_or(Value::Null, text);
            value
        };
        match event {
            Event::Granted {
                id,
                token,
                key: None,
            } => json!({"granted": name(id), "token": token}),
            Event::Granted {
                id,
                token,
                key: Some(key),
            } => {
                json!({"granted": name(id), "token": token, "key": text(&key)})
            }
            Event::Refused { id, error } => failed("refused", id, &error),
            Event::Lost { id, loss } => {
                let event = json!({"lost": name(id), "reason": loss.reason()});
                self.lost.insert(id, loss);
                event
            }
            Event::Releasing { id, error } => json!({"releasing": name(id), "code": code(&error)}),
            Event::Released { id } => json!({"released": name(id)}),
            Event::Over { id } => json!({"over": name(id)}),
            Event::Extended { id } => json!({"extended": name(id)}),
            Event::NotExtended { id, error } => failed("not_extended", id, &error),
            Event::Raised { id, token } => json!({"raised": name(id), "token": token}),
            Event::NotRaised { id, error } => failed("not_raised", id, &error),
            Event::Watch { id, event } => {
                let change = format!("{:?}", event.change).to_lowercase();
                json!({"watch": name(id), "key": text(&event.key), "is": change})
            }
            Event::Presence { id, event } => {
                let of =
                    |is: &str| json!({"presence": name(id), "key": text(&event.key), "is": is});
                match &event.change {
                    MemberChange::Added(new) => member(of("add"), new),
                    MemberChange::Set(new) => member(of("set"), new),
                    MemberChange::Gone(reason) => {
                        let mut gone = of("del");
                        gone["reason"] = json!(reason);
                        gone
                    }
                }
            }
            Event::Leader { id, leader } => match leader {
                Some(leader) => member(json!({"leader": name(id)}), &leader),
                None => json!({"leader": name(id), "token": null}),
            },
            Event::Ended { id, error, .. } => failed("ended", id, &error),
            Event::NoBootClock => json!({"warning": "no-boot-clock"}),
        }
    }
}

fn order(order: Order) -> Value {
    match order {
        Order::Connect => json!("connect"),
        Order::Leave => json!("leave"),
        Order::LeaveAfter(time) => json!({"leave_after": time.as_millis() as u64}),
    }
}

fn read(name: &str) -> Value {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/vectors"));
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// Where it fails.
fn verdict(vector: &Value, preludes: &Value) -> Option<String> {
    let prelude = &preludes[vector["begin"].as_str().unwrap()];
    let mut client = prelude["client"].clone();
    for (name, value) in vector
        .get("client")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        client[name] = value.clone();
    }
    let mut world = World::new(&client);
    let steps = prelude["steps"].as_array().unwrap().iter();
    steps
        .chain(vector["steps"].as_array().unwrap())
        .find_map(|step| {
            let wrong = world.step(step);
            (!wrong.is_empty())
                .then(|| format!("{}: {step}\n    {}", vector["name"], wrong.join("\n    ")))
        })
}

#[test]
fn the_core_does_what_the_vectors_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/vectors");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let files = files.map(|file| file.into_string().unwrap());
    let is_of_vectors = |file: &String| {
        file.ends_with(".json") && !["schema.json", "preludes.json"].contains(&file.as_str())
    };
    let preludes = read("preludes.json");
    let (mut count, mut failures) = (0, Vec::new());
    for file in files.filter(is_of_vectors) {
        for vector in read(&file).as_array().unwrap() {
            count += 1;
            failures.extend(verdict(vector, &preludes));
        }
    }
    println!(
        "vectors: {} passed; {} failed",
        count - failures.len(),
        failures.len()
    );
    assert!(
        failures.is_empty() && count > 200,
        "{}",
        failures.join("\n")
    );
}

/// An attempt to resume ends with the session, and no other follows unless somebody asks.
#[test]
fn whoever_waits_for_a_connection_hears_of_an_attempt_that_ends_with_the_session() {
    let resume = json!([["SESSION.RESUME", "s", "NOTIFY"]]);
    let steps = [
        json!({"at": 1000}),
        json!({"broke": true, "orders": ["connect"]}),
        json!({"connected": true, "sent": resume}),
        json!({"at": 7000, "orders": ["leave", "connect"]}),
        json!({"call": "open"}),
    ];
    let mut world = play("session", &steps);
    let (_, before, _) = world.core.trouble();
    let over = json!({"at": 8000, "orders": ["leave"]});
    assert_eq!(world.step(&over), [""; 0]);
    let (is_up, failures, trouble) = world.core.trouble();
    assert_eq!((is_up, failures), (false, before + 1), "{trouble:?}");
}

/// Plays these steps after a prelude.
fn play(prelude: &str, steps: &[Value]) -> World {
    let prelude = &read("preludes.json")[prelude];
    let mut world = World::new(&prelude["client"]);
    for step in prelude["steps"].as_array().unwrap().iter().chain(steps) {
        assert_eq!(world.step(step), [""; 0], "{step}");
    }
    world
}

fn stands(label: &str) -> Value {
    json!([[
        "SETTP", "lead", "me", "TOKEN", "TASK", label, "NOTIFY", "WAIT", "0", "PUSH"
    ]])
}

fn leads() -> [Value; 2] {
    [
        json!({"call": "acquire", "id": "e", "keys": ["lead"], "temporary": "me", "elect": true, "sent": stands(".1")}),
        json!({"recv": 7, "events": [{"granted": "e", "token": 7}]}),
    ]
}

/// The term may have ended since its leader looked, and another one may have begun.
#[test]
fn who_resigns_from_a_former_term_ends_neither_the_candidate_nor_its_next_term() {
    let mut world = play("plain", &leads());
    let id = world.id(&json!("e"));
    let lost = json!({"recv": {"push": ["settp", "lead", "LOST deleted"]}, "events": [{"lost": "e", "reason": "deleted"}], "sent": stands(".2")});
    assert_eq!(world.step(&lost), [""; 0]);
    world.core.resign(id, 7);
    let granted = json!({"recv": 9, "events": [{"granted": "e", "token": 9}]});
    assert_eq!(world.step(&granted), [""; 0]);
    world.core.resign(id, 7);
    assert_eq!(world.core.check(id), Some(Status::Held));
    world.core.resign(id, 9);
    assert_eq!(world.core.check(id), Some(Status::Released));
}
