//! A client's pool lends one connection to several threads, one after the other, and to the server they are one owner.

use super::programs::shown_in_python;
use tether_testing::harness::Server;

#[test]
fn eight_threads_on_a_pool_of_redis_py_get_a_lock_once() {
    let server = Server::start();
    let program = shown_in_python(include_str!("pool.py"));
    let (status, said) = program.run(server.port());
    assert!(status.success(), "{status}:\n{said}");
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>(),
        ["1", "0"],
        "{said}"
    );
    let granted = server.gauge("tether", "tether_grants_total");
    assert_eq!(granted, 1);
}
