use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Adapter;
use Redis::Fast;

my ($host, $port) = @ARGV;
my $shared = Redis::Fast->new(server => "$host:$port");
my $holder = sub {
    my $me = Redis::Fast->new(server => "$host:$port", read_timeout => 10);
    my $token = $me->${\'lock.acquire'}('report', 'WAIT', 6000);
    return ($me, $token);
};
Adapter::serve('Redis::Fast', $shared, $holder);
