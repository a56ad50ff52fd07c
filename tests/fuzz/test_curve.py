"""What is left of a campaign's curve when it has too many points."""

from poolproof.fuzz.status import CurvePoint, with_point


def curve_of(num_rounds, num_discovering, most_points):
    """A campaign that discovers evenly for some rounds and then nothing."""
    curve = ()
    for number in range(num_rounds):
        states = 100 * min(number, num_discovering) - min(number, num_discovering) ** 2
        curve = with_point(curve, CurvePoint(number * 1_000, float(number), states), most_points)
    return curve


def test_a_short_curve_keeps_every_point():
    assert len(curve_of(20, 10, 20)) == 20


def test_a_long_curve_keeps_its_ends_and_stays_short():
    curve = curve_of(500, 10, 20)
    assert len(curve) == 20
    assert (curve[0].seconds, curve[-1].seconds) == (0.0, 499.0)


def test_discovery_in_the_first_rounds_of_a_long_campaign_is_still_seen():
    discovering = [point for point in curve_of(2_000, 12, 20) if point.seconds <= 12]
    assert [point.seconds for point in discovering] == [float(number) for number in range(13)]
