//! Link-local addresses: the zone of an endpoint becomes the scope of the address that is connected to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use common::{PATIENCE, Peer};
use tokio::net::TcpListener;
use zmtp::{Connection, Endpoint, Error, Limits, SocketType, Timeouts};

async fn connect(endpoint: &str) -> Result<Connection, Error> {
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        ..Timeouts::default()
    };
    let endpoint = Endpoint::parse(endpoint).unwrap();
    zmtp::connect(&endpoint, SocketType::Sub, Limits::default(), timeouts).await
}

/// A link-local address of this machine, with the number and the name of its interface.
fn own_link_local() -> Option<(Ipv6Addr, u32, String)> {
    let table = fs::read_to_string("/proc/net/if_inet6").ok()?;
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let address = Ipv6Addr::from(u128::from_str_radix(fields[0], 16).unwrap());
        let number = u32::from_str_radix(fields[1], 16).unwrap();
        let found = (address, number, fields[5].to_owned());
        address.is_unicast_link_local().then_some(found)
    })
}

#[tokio::test]
async fn a_name_and_a_number_reach_the_same_peer() {
    // A machine without such an address has nothing to test here.
    let Some((address, number, name)) = own_link_local() else {
        return;
    };
    let bound = SocketAddrV6::new(address, 0, 0, number);
    let peer = Peer::on(TcpListener::bind(bound).await.unwrap());
    let port = peer.endpoint().port();
    for zone in [name, number.to_string()] {
        let endpoint = format!("tcp://[{address}%25{zone}]:{port}");
        let both = async { tokio::join!(connect(&endpoint), peer.welcome(1, "PUB")) };
        let (connection, _stream) = tokio::time::timeout(PATIENCE, both).await.unwrap();
        let SocketAddr::V6(reached) = connection.unwrap().peer() else {
            unreachable!("an IPv6 endpoint");
        };
        assert_eq!((*reached.ip(), reached.scope_id()), (address, number));
    }
}

#[tokio::test]
async fn an_unknown_interface_is_named() {
    let error = connect("tcp://[fe80::1%25none-such0]:18000").await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Interface { .. }), "{error}");
    let expected = "cannot find the network interface none-such0, ";
    assert!(error.to_string().starts_with(expected), "{error}");
}
