//! Whoever is subscribed to channels and asks to stand still: newer servers block no such connection for a module.

use crate::harness::*;
use crate::line::*;

const REQUESTS: [(&str, &str); 3] = [
    ("SETTP k v WAIT 0", "settp k"),
    ("LOCK.ACQUIRE k WAIT 5000", "lock k"),
    ("LOCK.MACQUIRE 2 other k WAIT 0", "lock other"),
];

/// Who is subscribed to a channel on RESP3, and may give any command.
fn subscribed(server: &Server) -> Client {
    let mut client = server.resp3();
    client.send("SUBSCRIBE channel");
    assert!(client.next_push().starts_with("subscribe channel"));
    client
}

/// It waits as others do, or is refused and waits for nothing; the server goes on.
#[test]
fn who_is_subscribed_waits_or_is_told_what_to_do_instead() {
    for (request, _) in REQUESTS {
        let server = Server::start();
        let mut owner = server.resp3();
        owner.run("LOCK.ACQUIRE k");
        let mut asker = subscribed(&server);
        asker.send(request);
        let stands = eventually(request, || {
            match (tether(&server, "waiters"), asker.has_reply()) {
                (1, false) => Ok(true),
                (0, true) => Ok(false),
                other => Err(format!("{other:?}")),
            }
        });
        assert!(stands || server.is_at_least((99, 0), (8, 1)), "{request}");
        if !stands {
            let Frame::Error(text) = asker.read_reply() else {
                panic!("{request} is answered")
            };
            let text = String::from_utf8(text).expect("words");
            assert!(text.starts_with("ERR ") && text.contains("PUSH"), "{text}");
            assert_eq!(tether(&server, "waiters"), 0);
            assert_eq!(
                owner.call("LOCK.ACQUIRE other"),
                int(token_of(&server, "k") + 1)
            );
            owner.run("LOCK.RELEASE other");
        }
        // Those behind it are served all the same.
        let mut behind = server.resp3();
        queue(&server, &mut behind, "LOCK.ACQUIRE k WAIT 0");
        owner.run("LOCK.RELEASE k");
        if stands {
            assert_ne!(asker.read_reply(), null());
            asker.run("QUIT");
        }
        assert!(behind.read_reply().number() > 0);
        quit(&server, behind);
        eventually_nothing_is_left(&server);
    }
}

#[test]
fn who_is_subscribed_may_wait_with_push() {
    for (request, news) in REQUESTS {
        let server = Server::start();
        let mut owner = server.resp3();
        owner.run("LOCK.ACQUIRE k");
        let mut asker = subscribed(&server);
        queue_push(&mut asker, &format!("{request} PUSH"));
        owner.run("LOCK.RELEASE k");
        assert!(asker.next_push().starts_with(news), "{request}");
        owner.run("PUBLISH channel hello");
        assert_eq!(asker.next_push(), "message channel hello");
    }
}
